"""Checks with programs that others wrote, in their own languages: scripts/check-system builds what it needs and runs them, apart from the suite."""
