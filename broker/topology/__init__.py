"""Addresses and queues: made, found, removed."""
