"""The process around the broker: its start and stop, who it listens to, how it reloads, and its upkeep beside the loop."""
