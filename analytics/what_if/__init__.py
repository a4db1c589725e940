"""What another policy would have made of the same failures."""
