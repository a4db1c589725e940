"""What can be asked of and done to a running broker: one file per resource. Handlers of the CALL verbs (docs/protocol.md, 2.7)."""
