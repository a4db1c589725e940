"""The HTTP API: what the pages show and do, for programs. Typed, and described by a document that is made of the same table."""
