"""The journal: records in, records out. It knows nothing of the broker."""
