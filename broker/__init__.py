"""Homing: a message broker whose messages find their way home."""

from .version import BUILD

__version__ = BUILD.version
