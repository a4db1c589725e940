-- What small commits wrote, packed, until the tables have it (commit/entries.py).
CREATE TABLE entry (
  number     INTEGER PRIMARY KEY,
  version    INTEGER NOT NULL,
  checksum   INTEGER NOT NULL,
  batch_blob BLOB NOT NULL
) STRICT;
