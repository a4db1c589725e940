"""The failure desk: pages over what failed, for people, by a process that is a client of the broker like any other."""
