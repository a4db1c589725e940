-- Why a message is in trouble, found by index: its fault group, what it died of, the redrive that sent it back, and its key.
ALTER TABLE reference ADD COLUMN cause INTEGER;
ALTER TABLE reference ADD COLUMN redrive INTEGER;
ALTER TABLE reference ADD COLUMN message_key TEXT;
CREATE INDEX reference_dead ON reference (queue_id, cause) WHERE cause & 7;
CREATE INDEX reference_key ON reference (queue_id, message_key) WHERE message_key IS NOT NULL;
ALTER TABLE returned ADD COLUMN last_cause INTEGER;
ALTER TABLE returned ADD COLUMN last_redrive INTEGER;
CREATE TABLE fault (
  fault_id    INTEGER PRIMARY KEY,
  fingerprint TEXT NOT NULL,
  queue       TEXT NOT NULL,
  error_class TEXT NOT NULL,
  first_ms    INTEGER NOT NULL,
  last_ms     INTEGER NOT NULL,
  fault_blob  BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX fault_fingerprint ON fault (fingerprint, queue);
CREATE TABLE fault_text (
  fault_id  INTEGER PRIMARY KEY,
  text      TEXT NOT NULL,
  traceback TEXT NOT NULL
) STRICT;
CREATE TABLE fault_count (
  fault_id  INTEGER NOT NULL,
  slot      INTEGER NOT NULL,
  failures  INTEGER NOT NULL DEFAULT 0,
  waiting   INTEGER NOT NULL DEFAULT 0,
  succeeded INTEGER NOT NULL DEFAULT 0,
  died      INTEGER NOT NULL DEFAULT 0,
  redriven  INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (fault_id, slot)
) STRICT, WITHOUT ROWID;
