-- What small commits wrote, packed, until the tables have it (commit/packed_commits.py).
CREATE TABLE packed_commit (
  number     INTEGER PRIMARY KEY,
  version    INTEGER NOT NULL,
  checksum   INTEGER NOT NULL,
  batch_blob BLOB NOT NULL
) STRICT;
