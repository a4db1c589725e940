"""AMQP consumers that tell the broker why a delivery failed: pika, aio-pika, Celery (docs/interoperability.md, "Why a delivery failed")."""
