"""What is read back: pages, the state at start, answers to queries, and whether all of it is whole."""
