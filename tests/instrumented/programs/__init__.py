"""Consumers as the documentation of their libraries has them. Python 3.9, and nothing of ours: they run in environments of their own."""
