"""Front ends. Each folder holds a sans-IO codec (bytes in, events out) and a session that turns events into Broker verbs."""
