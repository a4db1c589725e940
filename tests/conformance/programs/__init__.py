"""Programs that a broker is asked to play; test_programs.py has ours and RabbitMQ play each and compares."""

from tests.conformance.programs import dead_letters, exchanges, frameworks, goodbyes, guarantees, messages, order, protocol, queues
from tests.conformance.programs.stage import PROGRAMS, Stage

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
