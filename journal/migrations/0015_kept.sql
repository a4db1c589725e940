-- A packed message says whether its sender wanted it kept. Messages as they were are read as well (packing.py), all of them durable.
-- What was not reported is a fault of its queue and outcome (fingerprint.py, version 3); muted and fixed faults stay so.
UPDATE fault SET fingerprint = fingerprint_of_group(fingerprint, error_class, queue);
-- The last events of each kind.
CREATE TABLE event (
  event_id   INTEGER PRIMARY KEY,
  kind       TEXT NOT NULL,
  at_ms      INTEGER NOT NULL,
  queue      TEXT NOT NULL,
  address    TEXT NOT NULL,
  event_blob BLOB NOT NULL
) STRICT;
CREATE INDEX event_kind ON event (kind, event_id);
-- Tasks whose library sends each try as a message of its own: the message whose attempts they are, and how many failed. The last 10,000.
CREATE TABLE story (
  story_id   INTEGER PRIMARY KEY,          -- ascending
  queue      TEXT NOT NULL,
  story      TEXT NOT NULL,                -- what all tries of a task have in common
  message_id INTEGER NOT NULL,
  failed     INTEGER NOT NULL,
  UNIQUE (queue, story)
) STRICT;
-- References whose messages are not durable and are on disk for want of memory: gone after a crash, kept by an orderly stop (upkeep/spilled.py).
CREATE TABLE spilled (
  queue_id INTEGER NOT NULL,
  block    INTEGER NOT NULL,
  bits     INTEGER NOT NULL,               -- bit n stands for sequence 32 * block + n
  checksum INTEGER NOT NULL,               -- of all three
  PRIMARY KEY (queue_id, block)
) STRICT, WITHOUT ROWID;
-- The policy that held for a queue last, where its pattern may take too long.
ALTER TABLE queue ADD COLUMN policy TEXT;
-- Of the counts by the minute, those of messages that are not durable.
ALTER TABLE minute ADD COLUMN transient_sent INTEGER NOT NULL DEFAULT 0;
ALTER TABLE minute ADD COLUMN transient_moved_in INTEGER NOT NULL DEFAULT 0;
ALTER TABLE minute ADD COLUMN transient_delivered INTEGER NOT NULL DEFAULT 0;
ALTER TABLE minute ADD COLUMN transient_succeeded INTEGER NOT NULL DEFAULT 0;
ALTER TABLE minute ADD COLUMN transient_first_try INTEGER NOT NULL DEFAULT 0;
ALTER TABLE minute ADD COLUMN transient_failed INTEGER NOT NULL DEFAULT 0;
ALTER TABLE minute ADD COLUMN transient_dead_lettered INTEGER NOT NULL DEFAULT 0;
ALTER TABLE minute ADD COLUMN transient_expired INTEGER NOT NULL DEFAULT 0;
ALTER TABLE minute ADD COLUMN transient_dropped INTEGER NOT NULL DEFAULT 0;
ALTER TABLE minute ADD COLUMN transient_purged INTEGER NOT NULL DEFAULT 0;
ALTER TABLE minute ADD COLUMN transient_moved_out INTEGER NOT NULL DEFAULT 0;
ALTER TABLE minute ADD COLUMN kept INTEGER NOT NULL DEFAULT 0;
ALTER TABLE minute ADD COLUMN lost INTEGER NOT NULL DEFAULT 0;
-- Of the messages of a fault that were sent back: those that succeeded, and those that were dead-lettered again.
ALTER TABLE fault_count ADD COLUMN back_succeeded INTEGER NOT NULL DEFAULT 0;
ALTER TABLE fault_count ADD COLUMN back_died INTEGER NOT NULL DEFAULT 0;
