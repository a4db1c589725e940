"""A queue entry begins, stands (in memory, on disk, until a time), and ends; windows, pages, and what is chosen of a queue."""
