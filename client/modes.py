"""The session modes of JMS, and ActiveMQ's INDIVIDUAL."""

from __future__ import annotations

from enum import Enum


class AckMode(Enum):
    """When messages are acknowledged.

    AUTO: before ``receive()`` returns one, after a listener returned. CLIENT: ``acknowledge()`` settles all the session was given.
    DUPS_OK: in batches, late. TRANSACTED: at ``commit()``, together with what was sent. INDIVIDUAL: each by itself, in any order.
    """

    AUTO = "auto"
    CLIENT = "client"
    DUPS_OK = "dups-ok"
    TRANSACTED = "transacted"
    INDIVIDUAL = "individual"
