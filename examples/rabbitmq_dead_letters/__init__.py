"""Three well-known programs for RabbitMQ's dead-letter exchanges, with pika. They run the same against RabbitMQ and Homing."""
