-- Queues are read back a page at a time: what is due and what expires by time, in an order that a cursor can go on in, and what stands
-- apart (parked, suspect) without a look at the rest.
DROP INDEX reference_due;
CREATE INDEX reference_due ON reference (queue_id, due_at_ms, sequence, rank) WHERE due_at_ms IS NOT NULL;
CREATE INDEX reference_expires ON reference (queue_id, expires_at_ms, sequence) WHERE expires_at_ms IS NOT NULL;
CREATE INDEX reference_apart ON reference (queue_id) WHERE state <> 0;
