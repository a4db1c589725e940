-- Version 4 had a row for each attempt and each outcome, and in each what it has in common with those that ended together with it. The
-- order is that of the indexes by time, so that nothing is sorted, however long the history.
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
CREATE INDEX failure_several ON failure (first_message, last_message) WHERE last_message > first_message;
ALTER TABLE outcome RENAME TO outcome_4;
CREATE TABLE outcome (
  outcome_id    INTEGER PRIMARY KEY,
  queue_id      INTEGER NOT NULL,
  at_ms         INTEGER NOT NULL,
  outcome       TEXT NOT NULL,
  first_message INTEGER NOT NULL,
  last_message  INTEGER NOT NULL,
  stays         TEXT NOT NULL,
  outcome_blob  BLOB NOT NULL
) STRICT;
INSERT INTO outcome (queue_id, at_ms, outcome, first_message, last_message, stays, outcome_blob)
  SELECT queue_id, at_ms, outcome, message_id, message_id, json_array(json_array(message_id, sequence)), outcome_blob
  FROM outcome_4 ORDER BY at_ms, message_id, sequence;
DROP TABLE outcome_4;
CREATE INDEX outcome_at ON outcome (at_ms);
CREATE INDEX outcome_message ON outcome (first_message, last_message);
CREATE INDEX outcome_several ON outcome (first_message, last_message) WHERE last_message > first_message;
UPDATE meta
  SET value = value + (SELECT coalesce(sum(length(stays)), 0) FROM failure) + (SELECT coalesce(sum(length(stays)), 0) FROM outcome)
  WHERE key = 'history_bytes';
