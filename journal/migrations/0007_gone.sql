-- References that left while their rows stay until they are removed in the order in which they lie: an older Homing would bring them back.
CREATE TABLE gone (
  block INTEGER PRIMARY KEY,
  bits  INTEGER NOT NULL
) STRICT;
