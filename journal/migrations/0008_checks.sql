-- Counts, times and what is gone had no checksum: what they say now is taken for true. counts_checksum is a function of the broker's.
ALTER TABLE reference ADD COLUMN counts_checksum INTEGER;
UPDATE reference SET counts_checksum =
    counts_checksum(queue_id, rank, sequence, delivery_count, failed, assigned, state, due_at_ms, expires_at_ms)
 WHERE delivery_count <> 0 OR failed <> 0 OR assigned <> 0 OR state <> 0 OR due_at_ms IS NOT NULL OR expires_at_ms IS NOT NULL;
CREATE TABLE checked_gone (
  block    INTEGER PRIMARY KEY,
  bits     INTEGER NOT NULL,
  checksum INTEGER NOT NULL
) STRICT;
INSERT INTO checked_gone SELECT block, bits, (block * 1009 + bits * 31 + 7) % 4294967291 FROM gone;
DROP TABLE gone;
ALTER TABLE checked_gone RENAME TO gone;
