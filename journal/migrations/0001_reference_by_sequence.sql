-- Version 0 kept references in a table without row ids, clustered by (queue_id, rank, sequence), and had no quarantine.
-- Why they moved: docs/decisions/0001-journal-layout.md.
ALTER TABLE reference RENAME TO reference_0;
DROP INDEX reference_due;
CREATE TABLE reference (
  queue_id       INTEGER NOT NULL,
  rank           INTEGER NOT NULL,
  sequence       INTEGER PRIMARY KEY,
  message_id     INTEGER NOT NULL,
  delivery_count INTEGER NOT NULL,
  failed         INTEGER NOT NULL,
  assigned       INTEGER NOT NULL,
  state          INTEGER NOT NULL,
  due_at_ms      INTEGER,
  expires_at_ms  INTEGER,
  entered_at_ms  INTEGER NOT NULL,
  overlay_blob   BLOB,
  message_blob   BLOB,
  checksum       INTEGER NOT NULL
) STRICT;
INSERT INTO reference
  SELECT queue_id, rank, sequence, message_id, delivery_count, failed, assigned, state, due_at_ms, expires_at_ms, entered_at_ms,
         overlay_blob, message_blob, checksum
  FROM reference_0 ORDER BY sequence;
DROP TABLE reference_0;
CREATE INDEX reference_order ON reference (queue_id, rank);
CREATE INDEX reference_due ON reference (queue_id, due_at_ms) WHERE due_at_ms IS NOT NULL;
CREATE INDEX reference_message ON reference (message_id) WHERE overlay_blob IS NOT NULL OR message_blob IS NULL;

DROP INDEX duplicate_number;
CREATE INDEX duplicate_number ON duplicate (address, number);

CREATE TABLE quarantine (
  sequence     INTEGER PRIMARY KEY,
  queue_id     INTEGER NOT NULL,
  message_id   INTEGER NOT NULL,
  at_ms        INTEGER NOT NULL,
  reason       TEXT NOT NULL,
  row_blob     BLOB NOT NULL
) STRICT;

INSERT OR REPLACE INTO meta VALUES
  ('next_queue_id', (SELECT coalesce(max(queue_id), 0) + 1 FROM queue)),
  ('history_bytes', (SELECT coalesce(sum(length(attempt_blob)), 0) FROM attempt) + (SELECT coalesce(sum(length(outcome_blob)), 0) FROM outcome));
