-- Version 1 knew addresses and queues only; exchanges and their bindings must survive a restart too.
CREATE TABLE declaration (
  kind          TEXT NOT NULL,
  name          TEXT NOT NULL,
  content_blob  BLOB NOT NULL,
  PRIMARY KEY (kind, name)
) STRICT, WITHOUT ROWID;
