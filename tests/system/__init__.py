"""Programs of others, in their own languages, against our broker: scripts/check-system builds and runs them, apart from the suite."""
