-- The journal, version 16. One read-write connection; every other opens the file mode=ro.
-- Times are milliseconds since 1970 UTC; *_blob columns are msgpack. A page is 16 KiB (set before the first table).

CREATE TABLE meta (
  key   TEXT PRIMARY KEY,
  value ANY
) STRICT, WITHOUT ROWID;
-- keys: broker_id, created_at_ms, reserved_up_to (ids below it may be in use), next_queue_id, clock_ms (latest broker time seen),
-- clean_stop (0/1), history_bytes (entries and blobs of failure and outcome), history_from_ms (older ones may be gone), commits (transactions so far: commits.py)

-- What small commits wrote, packed, until the tables below have it (commit/packed_commits.py): those that came after the last of these.
CREATE TABLE packed_commit (
  number     INTEGER PRIMARY KEY,          -- of the commit
  version    INTEGER NOT NULL,             -- of the packing (commit/packed_batch.py)
  checksum   INTEGER NOT NULL,             -- crc32 of batch_blob, begun with the number
  batch_blob BLOB NOT NULL
) STRICT;

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
  deleted_at_ms INTEGER,
  policy        TEXT                       -- that held for it last, where its pattern may take too long
) STRICT;
CREATE UNIQUE INDEX queue_live_name ON queue (name) WHERE deleted_at_ms IS NULL;

-- What front ends declared beyond that (exchanges, bindings, users): a map each, under a name that is unique within its kind.
CREATE TABLE declaration (
  kind          TEXT NOT NULL,             -- 'exchange' | 'binding'
  name          TEXT NOT NULL,
  content_blob  BLOB NOT NULL,
  PRIMARY KEY (kind, name)
) STRICT, WITHOUT ROWID;

-- One message in one queue. rank = 9 - priority, the priority being 0 to 255. sequence is unique over the whole journal and is the row's
-- own key, so that arrivals append; reference_order is the delivery order (an index entry ends in the row's key) and answers counts without
-- reading a body (figures: docs/decisions/0001-journal-layout.md).
CREATE TABLE reference (
  queue_id       INTEGER NOT NULL,
  rank           INTEGER NOT NULL,
  sequence       INTEGER PRIMARY KEY,
  message_id     INTEGER NOT NULL,
  delivery_count INTEGER NOT NULL,
  failed         INTEGER NOT NULL,
  assigned       INTEGER NOT NULL,
  state          INTEGER NOT NULL,         -- bits: 1 parked, 2 suspect
  due_at_ms      INTEGER,                  -- NULL: now
  expires_at_ms  INTEGER,                  -- NULL: never; of this message in this queue
  entered_at_ms  INTEGER NOT NULL,
  overlay_blob   BLOB,                     -- list of hops, newest first (packing.py), empty before the first death; NULL before the first move
  message_blob   BLOB,                     -- the packed message; NULL: it stands in table message
  checksum       INTEGER NOT NULL,         -- crc32 of message_blob (0 without one)
  counts_checksum INTEGER,                 -- of counts, state, times and place (packing.py); NULL: none of those counts and times was ever set
  cause          INTEGER,                  -- why it is in trouble (contract.cause): bits 0-2 why it was dead-lettered, 3 sent back once, 4- fault_id; NULL: it is not
  redrive        INTEGER,                  -- the job that sent it back, negative once it failed as before; NULL: none
  message_key    TEXT                      -- of a dead letter, where the settings name the property
) STRICT;
CREATE INDEX reference_order ON reference (queue_id, rank);
-- By time, in an order that a cursor can go on in.
CREATE INDEX reference_due ON reference (queue_id, due_at_ms, sequence, rank) WHERE due_at_ms IS NOT NULL;
CREATE INDEX reference_expires ON reference (queue_id, expires_at_ms, sequence) WHERE expires_at_ms IS NOT NULL;
CREATE INDEX reference_apart ON reference (queue_id) WHERE state <> 0;
-- Dead letters by fault and reason, and by key, each in the order in which they came, which is that of their times, too.
CREATE INDEX reference_dead ON reference (queue_id, cause) WHERE cause & 7;
CREATE INDEX reference_key ON reference (queue_id, message_key) WHERE message_key IS NOT NULL;
-- Where a message went: moved and shared ones only, since an index over all costs every send (the rest have one reference, the first).
CREATE INDEX reference_message ON reference (message_id) WHERE overlay_blob IS NOT NULL OR message_blob IS NULL;

-- Counts of references that came back at once, in the place of those in their rows (store/returned.py). proof: their counts_checksum.
CREATE TABLE returned (
  sequence    INTEGER PRIMARY KEY,
  deliveries  INTEGER NOT NULL,
  failures    INTEGER NOT NULL,
  assignments INTEGER NOT NULL,
  proof       INTEGER NOT NULL,
  last_cause  INTEGER,
  last_redrive INTEGER
) STRICT;

-- References that left while their rows stay until they are removed in the order in which they lie (tombstones.py): bit n of bits stands for
-- sequence 32 * block + n.
CREATE TABLE gone (
  block    INTEGER PRIMARY KEY,
  bits     INTEGER NOT NULL,
  checksum INTEGER NOT NULL                -- of both (tombstones.py)
) STRICT;

-- References whose messages are not durable and are on disk for want of memory: gone after a crash, kept by an orderly stop (upkeep/spilled.py).
CREATE TABLE spilled (
  queue_id INTEGER NOT NULL,
  block    INTEGER NOT NULL,
  bits     INTEGER NOT NULL,               -- bit n stands for sequence 32 * block + n
  checksum INTEGER NOT NULL,               -- of all three
  PRIMARY KEY (queue_id, block)
) STRICT, WITHOUT ROWID;

-- Bodies that several queues share, and large ones.
CREATE TABLE message (
  message_id   INTEGER PRIMARY KEY,
  message_blob BLOB NOT NULL,
  checksum     INTEGER NOT NULL
) STRICT;

-- Deliveries of one queue that ended badly together and alike: a row for all of them, of messages whose ids lie close together,
-- ascending in time (history.py). sequence: the queue entry that an attempt belongs to.
CREATE TABLE failure (
  failure_id    INTEGER PRIMARY KEY,
  queue_id      INTEGER NOT NULL,
  attempt       INTEGER NOT NULL,          -- 1, 2, … within each entry
  at_ms         INTEGER NOT NULL,          -- when they were settled
  first_message INTEGER NOT NULL,          -- the lowest and the highest message_id in it
  last_message  INTEGER NOT NULL,
  stays         TEXT NOT NULL,             -- JSON: [[message_id, sequence], …]
  failure_blob  BLOB NOT NULL              -- map, see AttemptDetail
) STRICT;
CREATE INDEX failure_at ON failure (at_ms);
CREATE INDEX failure_message ON failure (first_message, last_message);
CREATE INDEX failure_several ON failure (first_message, last_message) WHERE last_message > first_message;

-- How entries in a queue ended, of messages that failed at least once (history: full keeps every one); those alike together, as above,
-- but in no order.
CREATE TABLE outcome (
  outcome_id    INTEGER PRIMARY KEY,
  queue_id      INTEGER NOT NULL,
  at_ms         INTEGER NOT NULL,
  outcome       TEXT NOT NULL,             -- succeeded | dead-lettered | expired | dropped | purged | redriven | moved | edited
  first_message INTEGER NOT NULL,
  last_message  INTEGER NOT NULL,
  stays         TEXT NOT NULL,             -- JSON: [[message_id, sequence, sent_at_ms, entered_at_ms], …]; without times: they stand in the map
  outcome_blob  BLOB NOT NULL              -- map, see OutcomeDetail
) STRICT;
CREATE INDEX outcome_at ON outcome (at_ms);
CREATE INDEX outcome_message ON outcome (first_message, last_message);
CREATE INDEX outcome_several ON outcome (first_message, last_message) WHERE last_message > first_message;

-- Messages that took the place of others by an edit; kept for history-retention.
CREATE TABLE edit (
  message_id INTEGER PRIMARY KEY,
  original   INTEGER NOT NULL,             -- the message as it was, whether it is still there or not
  queue_id   INTEGER NOT NULL,             -- where the edited one went
  at_ms      INTEGER NOT NULL
) STRICT;
CREATE INDEX edit_original ON edit (original);

-- Tasks whose library sends each try as a message of its own: the message whose attempts they are, and how many failed. The last 10,000.
CREATE TABLE story (
  story_id   INTEGER PRIMARY KEY,          -- ascending
  queue      TEXT NOT NULL,
  story      TEXT NOT NULL,                -- what all tries of a task have in common
  message_id INTEGER NOT NULL,
  failed     INTEGER NOT NULL,
  UNIQUE (queue, story)
) STRICT;

-- The last 200 events of each kind.
CREATE TABLE event (
  event_id   INTEGER PRIMARY KEY,          -- ascending
  kind       TEXT NOT NULL,                -- core/event.py
  at_ms      INTEGER NOT NULL,
  queue      TEXT NOT NULL,                -- what it happened to; '': the broker
  address    TEXT NOT NULL,                -- of that
  event_blob BLOB NOT NULL                 -- map: what was sent to homing.events
) STRICT;
CREATE INDEX event_kind ON event (kind, event_id);

-- Failures of a queue that look alike (fingerprint.py); at most faults.MOST, the least recent being folded into the one of fault_id 1.
CREATE TABLE fault (
  fault_id    INTEGER PRIMARY KEY,
  fingerprint TEXT NOT NULL,
  queue       TEXT NOT NULL,               -- where they failed; '': the folded ones
  error_class TEXT NOT NULL,
  first_ms    INTEGER NOT NULL,
  last_ms     INTEGER NOT NULL,            -- about: written at most once a minute
  fault_blob  BLOB NOT NULL                -- map: the rest of contract.FaultRecord
) STRICT;
CREATE UNIQUE INDEX fault_fingerprint ON fault (fingerprint, queue);

-- What the first of them told.
CREATE TABLE fault_text (
  fault_id  INTEGER PRIMARY KEY,
  text      TEXT NOT NULL,
  traceback TEXT NOT NULL
) STRICT;

-- Their counts (contract.FaultStat) by ten minutes; those of more than a day ago stand in slot 0.
CREATE TABLE fault_count (
  fault_id  INTEGER NOT NULL,
  slot      INTEGER NOT NULL,
  failures  INTEGER NOT NULL DEFAULT 0,
  waiting   INTEGER NOT NULL DEFAULT 0,
  succeeded INTEGER NOT NULL DEFAULT 0,
  died      INTEGER NOT NULL DEFAULT 0,
  redriven  INTEGER NOT NULL DEFAULT 0,
  back_succeeded INTEGER NOT NULL DEFAULT 0,
  back_died INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (fault_id, slot)
) STRICT, WITHOUT ROWID;

-- Counts of messages per durable queue and minute. sent + moved_in = succeeded + dead_lettered + expired + dropped + purged + moved_out + lost
-- + still here. Those of durable messages come with what they count; those of transient ones once a minute (recording/transient_counts.py).
-- Rows get coarser with age (retention.py): older than history-retention one for an hour, than 8 times that for a day, than 104 times
-- that for 30 days; each stands at the first minute of what it covers.
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
  moved_out     INTEGER NOT NULL DEFAULT 0,  -- redriven, moved by hand or edited
  failed_first  INTEGER NOT NULL DEFAULT 0,  -- of the failed ones, first attempts
  failed_ms     INTEGER NOT NULL DEFAULT 0,  -- for how long consumers held the failed ones, together
  transient_sent          INTEGER NOT NULL DEFAULT 0,  -- of sent, messages that were not durable; and so on
  transient_moved_in      INTEGER NOT NULL DEFAULT 0,
  transient_delivered     INTEGER NOT NULL DEFAULT 0,
  transient_succeeded     INTEGER NOT NULL DEFAULT 0,
  transient_first_try     INTEGER NOT NULL DEFAULT 0,
  transient_failed        INTEGER NOT NULL DEFAULT 0,
  transient_dead_lettered INTEGER NOT NULL DEFAULT 0,
  transient_expired       INTEGER NOT NULL DEFAULT 0,
  transient_dropped       INTEGER NOT NULL DEFAULT 0,
  transient_purged        INTEGER NOT NULL DEFAULT 0,
  transient_moved_out     INTEGER NOT NULL DEFAULT 0,
  kept                    INTEGER NOT NULL DEFAULT 0,  -- transient ones that were durable from then on
  lost                    INTEGER NOT NULL DEFAULT 0,  -- transient ones that a crash took, or a stop that did not keep them
  PRIMARY KEY (queue_id, minute)
) STRICT, WITHOUT ROWID;

-- Which consumer the deliveries of table minute went to, by the hour; kept for history-retention. consumer: its name; where the client told
-- more of itself, JSON: [name, client_id, host, version].
CREATE TABLE served (
  hour      INTEGER NOT NULL,              -- hours since 1970 UTC
  queue_id  INTEGER NOT NULL,
  consumer  TEXT NOT NULL,
  succeeded INTEGER NOT NULL,
  held_ms   INTEGER NOT NULL,              -- from given (or, where nobody said so, sent out) to acknowledged, of all of them together
  failed    INTEGER NOT NULL DEFAULT 0,
  failed_ms INTEGER NOT NULL DEFAULT 0,    -- the same of the failed ones
  first_ms  INTEGER NOT NULL DEFAULT 0,    -- of all these, when the first and the last ended
  last_ms   INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (hour, queue_id, consumer)
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
CREATE INDEX duplicate_number ON duplicate (address, number);

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

-- Rows that failed their checksum at a start that was told to set them aside: everything that was readable, as msgpack.
CREATE TABLE quarantine (
  sequence     INTEGER PRIMARY KEY,        -- of the reference
  queue_id     INTEGER NOT NULL,
  message_id   INTEGER NOT NULL,
  at_ms        INTEGER NOT NULL,
  reason       TEXT NOT NULL,
  row_blob     BLOB NOT NULL               -- map: column -> value of the reference, plus shared_blob where the body stood apart
) STRICT;
