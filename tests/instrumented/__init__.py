"""One story that a program of each library plays, as people write it, started by ``homing instrument``."""
