"""Backups made while a broker runs, and the way back."""
