"""The process around the broker: its parts and its loop, start and stop, who it listens to, and its upkeep beside the loop."""
