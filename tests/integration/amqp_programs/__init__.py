"""Programs that a broker is asked to play; test_amqp_conformance.py has ours and RabbitMQ play each and compares."""

from tests.integration.amqp_programs import dead_letters, exchanges, frameworks, goodbyes, guarantees, messages, order, protocol, queues
from tests.integration.amqp_programs.stage import PROGRAMS, Stage

__all__ = [
    "PROGRAMS",
    "Stage",
    "dead_letters",
    "exchanges",
    "frameworks",
    "goodbyes",
    "guarantees",
    "messages",
    "order",
    "protocol",
    "queues",
]
