"""The log: its lines, its file, the audit, and what makes text safe to show."""
