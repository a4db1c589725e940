"""What an AMQP session says of the broker, and what it allows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: What RabbitMQ proposes.
HEARTBEAT_S: Final = 60


@dataclass(frozen=True, slots=True)
class AmqpOptions:
    #: What clients take the broker for.
    product: str
    version: str
    #: Whether x-death that a program has sent is counted on.
    goes_on: bool = True
    #: What it is.
    broker_name: str = "Homing"
    broker_version: str = ""
    cluster_name: str = "homing"
    channel_max: int = 2047
    frame_max: int = 131_072
    #: What is proposed; the client decides.
    heartbeat_s: int = HEARTBEAT_S
    max_message_bytes: int = 16 * 1024 * 1024
    #: Of messages that are half sent, on one connection.
    max_gathered_bytes: int = 64 * 1024 * 1024
    #: Of what is remembered for one connection.
    max_cache_bytes: int = 1024 * 1024


def counts_sent_deaths(version: str) -> bool:
    """Whether RabbitMQ of this version goes on counting x-death that a program has sent: until 4.0 it does."""
    major = version.partition(".")[0]
    return not major.isdigit() or int(major) < 4
