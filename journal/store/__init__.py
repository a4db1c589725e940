"""The database file and its folder: the connection that writes, bulk statements, packed records."""
