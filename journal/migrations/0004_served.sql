-- Version 3 counted successes by queue only; who had them tells fair consumers from hungry ones.
CREATE TABLE served (
  hour      INTEGER NOT NULL,
  queue_id  INTEGER NOT NULL,
  consumer  TEXT NOT NULL,
  succeeded INTEGER NOT NULL,
  held_ms   INTEGER NOT NULL,
  PRIMARY KEY (hour, queue_id, consumer)
) STRICT, WITHOUT ROWID;
