-- The tables as a prototype had them, before versions counted: references clustered by (queue_id, rank, sequence), no quarantine.

CREATE TABLE meta (
  key   TEXT PRIMARY KEY,
  value ANY
) STRICT, WITHOUT ROWID;
-- keys: broker_id, created_at_ms, reserved_up_to (ids below it may be in use), clock_ms (latest broker time seen), clean_stop (0/1)

-- Addresses and queues as declared or auto-created. Queue ids are never reused: a deleted queue keeps its row while history speaks of it.
CREATE TABLE address (
  name          TEXT PRIMARY KEY,
  routing_types INTEGER NOT NULL,          -- 1 anycast, 2 multicast, 3 both
  auto_created  INTEGER NOT NULL,
  created_at_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE queue (
  queue_id      INTEGER PRIMARY KEY,
  name          TEXT NOT NULL,
  address       TEXT NOT NULL,
  routing_type  TEXT NOT NULL,             -- 'anycast' | 'multicast'
  selector      TEXT,                      -- the binding's filter
  durable       INTEGER NOT NULL,
  auto_created  INTEGER NOT NULL,
  paused        INTEGER NOT NULL,
  options_blob  BLOB NOT NULL,             -- map: what the queue was declared with
  created_at_ms INTEGER NOT NULL,
  deleted_at_ms INTEGER
) STRICT;
CREATE UNIQUE INDEX queue_live_name ON queue (name) WHERE deleted_at_ms IS NULL;

-- One message in one queue, in delivery order. rank = 9 - priority. sequence is unique over the whole journal.
CREATE TABLE reference (
  queue_id       INTEGER NOT NULL,
  rank           INTEGER NOT NULL,
  sequence       INTEGER NOT NULL,
  message_id     INTEGER NOT NULL,
  delivery_count INTEGER NOT NULL,
  failed         INTEGER NOT NULL,
  assigned       INTEGER NOT NULL,
  state          INTEGER NOT NULL,         -- bits: 1 parked, 2 suspect
  due_at_ms      INTEGER,                  -- NULL: now
  expires_at_ms  INTEGER,                  -- NULL: never; of this message in this queue
  entered_at_ms  INTEGER NOT NULL,
  overlay_blob   BLOB,                     -- list of hops, newest first; NULL before the first move
  message_blob   BLOB,                     -- the packed message; NULL: it stands in table message
  checksum       INTEGER NOT NULL,         -- crc32 of message_blob (0 without one)
  PRIMARY KEY (queue_id, rank, sequence)
) STRICT, WITHOUT ROWID;
CREATE INDEX reference_due ON reference (queue_id, due_at_ms) WHERE due_at_ms IS NOT NULL;

-- Bodies that several queues share, and large ones.
CREATE TABLE message (
  message_id   INTEGER PRIMARY KEY,
  message_blob BLOB NOT NULL,
  checksum     INTEGER NOT NULL
) STRICT;

-- One row for each time a delivery ended badly. sequence: the queue entry that it belongs to.
CREATE TABLE attempt (
  message_id   INTEGER NOT NULL,
  sequence     INTEGER NOT NULL,
  attempt      INTEGER NOT NULL,           -- 1, 2, … within this stay
  queue_id     INTEGER NOT NULL,
  at_ms        INTEGER NOT NULL,           -- when it was settled
  attempt_blob BLOB NOT NULL,              -- map, see records.AttemptRecord
  PRIMARY KEY (message_id, sequence, attempt)
) STRICT, WITHOUT ROWID;
CREATE INDEX attempt_at ON attempt (at_ms);

-- How a queue entry ended, for messages that failed at least once (history: full keeps every one).
CREATE TABLE outcome (
  message_id   INTEGER NOT NULL,
  sequence     INTEGER NOT NULL,
  queue_id     INTEGER NOT NULL,
  at_ms        INTEGER NOT NULL,
  outcome      TEXT NOT NULL,              -- succeeded | dead-lettered | expired | dropped | purged | redriven
  outcome_blob BLOB NOT NULL,              -- map, see records.OutcomeRecord
  PRIMARY KEY (message_id, sequence)
) STRICT, WITHOUT ROWID;
CREATE INDEX outcome_at ON outcome (at_ms);

-- Counts of durable messages per queue and minute. sent + moved_in = succeeded + dead_lettered + expired + dropped + purged + moved_out + still here.
CREATE TABLE minute (
  queue_id      INTEGER NOT NULL,
  minute        INTEGER NOT NULL,          -- minutes since 1970 UTC
  sent          INTEGER NOT NULL DEFAULT 0,
  moved_in      INTEGER NOT NULL DEFAULT 0,  -- by dead-lettering, expiry or redrive
  delivered     INTEGER NOT NULL DEFAULT 0,
  succeeded     INTEGER NOT NULL DEFAULT 0,
  first_try     INTEGER NOT NULL DEFAULT 0,  -- of those, at the first attempt
  failed        INTEGER NOT NULL DEFAULT 0,
  dead_lettered INTEGER NOT NULL DEFAULT 0,
  expired       INTEGER NOT NULL DEFAULT 0,
  dropped       INTEGER NOT NULL DEFAULT 0,
  purged        INTEGER NOT NULL DEFAULT 0,
  moved_out     INTEGER NOT NULL DEFAULT 0,  -- redriven or moved by hand
  PRIMARY KEY (queue_id, minute)
) STRICT, WITHOUT ROWID;

-- Duplicate detection: the highest number stored for each producer, and ids given by hand.
CREATE TABLE producer (
  producer TEXT PRIMARY KEY,
  mark     INTEGER NOT NULL,
  at_ms    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE duplicate (
  address      TEXT NOT NULL,
  duplicate_id TEXT NOT NULL,
  number       INTEGER NOT NULL,           -- ascending; the oldest go first
  PRIMARY KEY (address, duplicate_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX duplicate_number ON duplicate (number);

CREATE TABLE committed (
  transaction_id TEXT PRIMARY KEY,
  at_ms          INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The settings in force: one row for each start or reload that changed them.
CREATE TABLE setting (
  from_ms       INTEGER PRIMARY KEY,
  settings_blob BLOB NOT NULL              -- map: pattern -> {setting: value}; broker-wide ones under ''
) STRICT;
CREATE TABLE policy (
  from_ms      INTEGER NOT NULL,
  policy       TEXT NOT NULL,              -- short hash that attempts name as policy in force
  policy_blob  BLOB NOT NULL,
  PRIMARY KEY (policy)
) STRICT, WITHOUT ROWID;
