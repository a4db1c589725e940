-- Version 4 had a row for each attempt, and in each what it has in common with those that failed together with it. The order is that of
-- index attempt_at, so that nothing is sorted, however long the history.
ALTER TABLE attempt RENAME TO attempt_4;
CREATE TABLE failure (
  failure_id    INTEGER PRIMARY KEY,
  queue_id      INTEGER NOT NULL,
  attempt       INTEGER NOT NULL,
  at_ms         INTEGER NOT NULL,
  first_message INTEGER NOT NULL,
  last_message  INTEGER NOT NULL,
  stays         TEXT NOT NULL,
  failure_blob  BLOB NOT NULL
) STRICT;
INSERT INTO failure (queue_id, attempt, at_ms, first_message, last_message, stays, failure_blob)
  SELECT queue_id, attempt, at_ms, message_id, message_id, json_array(json_array(message_id, sequence)), attempt_blob
  FROM attempt_4 ORDER BY at_ms, message_id, sequence, attempt;
DROP TABLE attempt_4;
CREATE INDEX failure_at ON failure (at_ms);
CREATE INDEX failure_message ON failure (first_message, last_message);
UPDATE meta SET value = value + (SELECT coalesce(sum(length(stays)), 0) FROM failure) WHERE key = 'history_bytes';
