-- Version 4 kept with each attempt what it has in common with those that failed together with it. The order is that of index attempt_at,
-- so that nothing is sorted, however long the history.
ALTER TABLE attempt RENAME TO attempt_4;
CREATE TABLE failure (
  failure_id   INTEGER PRIMARY KEY,
  queue_id     INTEGER NOT NULL,
  at_ms        INTEGER NOT NULL,
  failure_blob BLOB NOT NULL
) STRICT;
INSERT INTO failure
  SELECT row_number() OVER (ORDER BY at_ms, message_id, sequence, attempt), queue_id, at_ms, attempt_blob FROM attempt_4;
CREATE TABLE attempt (
  message_id   INTEGER NOT NULL,
  sequence     INTEGER NOT NULL,
  attempt      INTEGER NOT NULL,
  failure_id   INTEGER NOT NULL,
  PRIMARY KEY (message_id, sequence, attempt)
) STRICT, WITHOUT ROWID;
INSERT INTO attempt
  SELECT message_id, sequence, attempt, row_number() OVER (ORDER BY at_ms, message_id, sequence, attempt) FROM attempt_4;
DROP TABLE attempt_4;
CREATE INDEX attempt_failure ON attempt (failure_id);
CREATE INDEX failure_at ON failure (at_ms);
UPDATE meta SET value = value + 40 * (SELECT count(*) FROM attempt) WHERE key = 'history_bytes';
