"""Homing: a message broker whose messages find their way home."""

__version__ = "0.1.0"
