"""Exchanges, virtual hosts, declared queues, their arguments and policies, as AMQP 0-9-1 clients know them."""
