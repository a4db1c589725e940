-- Messages that took the place of others by an edit.
CREATE TABLE edit (
  message_id INTEGER PRIMARY KEY,
  original   INTEGER NOT NULL,
  queue_id   INTEGER NOT NULL,
  at_ms      INTEGER NOT NULL
) STRICT;
CREATE INDEX edit_original ON edit (original);
