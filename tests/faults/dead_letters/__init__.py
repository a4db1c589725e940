"""What a million dead letters cost: scripts/check-dead-letters."""
