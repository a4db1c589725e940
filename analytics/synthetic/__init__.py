"""Exports invented from a seed: for scale, and for tests of patterns that are planted."""
