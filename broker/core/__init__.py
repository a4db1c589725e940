"""What the broker knows and decides. Pure: no asyncio, no I/O, no clock and no randomness of its own."""
