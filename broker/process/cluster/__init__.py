"""A node of a cluster, and what commands do about one."""
