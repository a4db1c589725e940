"""The native protocol, as docs/protocol.md writes it down."""
