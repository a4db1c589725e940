-- Up to version 8 the first attempts among those that failed were known from table failure alone, which keeps some of each message.
ALTER TABLE minute ADD COLUMN failed_first INTEGER NOT NULL DEFAULT 0;
ALTER TABLE minute ADD COLUMN failed_ms INTEGER NOT NULL DEFAULT 0;
ALTER TABLE served ADD COLUMN failed INTEGER NOT NULL DEFAULT 0;
ALTER TABLE served ADD COLUMN failed_ms INTEGER NOT NULL DEFAULT 0;
ALTER TABLE served ADD COLUMN first_ms INTEGER NOT NULL DEFAULT 0;
ALTER TABLE served ADD COLUMN last_ms INTEGER NOT NULL DEFAULT 0;
UPDATE served SET first_ms = hour * 3600000, last_ms = (hour + 1) * 3600000;
UPDATE minute SET failed_first = min(failed, (
  SELECT coalesce(sum(json_array_length(stays)), 0) FROM failure
   WHERE attempt = 1 AND failure.queue_id = minute.queue_id AND at_ms >= minute.minute * 60000 AND at_ms < (minute.minute + 1) * 60000))
 WHERE failed > 0;
