"""What outlives its use goes, a bounded step at a time."""
