"""The demonstration behind ``scripts/demo``: real failures, a real kill -9, and an account that must balance."""
