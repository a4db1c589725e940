"""Queues longer than memory, and who gets how much of it."""
