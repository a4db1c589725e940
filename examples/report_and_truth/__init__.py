"""A workload of everything that goes wrong, through a real broker: what its clients know beside what the report says."""
