"""What AMQP 0-9-1 adds to the core: exchanges, policies, virtual hosts in names, RabbitMQ's account of deaths. Pure."""
