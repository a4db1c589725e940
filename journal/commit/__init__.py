"""What the next commit writes, when it goes to disk, and the thread that writes it."""
