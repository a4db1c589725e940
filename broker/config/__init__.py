"""broker.yaml: text in, a frozen Config or every error in it out."""
