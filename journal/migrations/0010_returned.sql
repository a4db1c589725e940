-- Each return of a message wrote the page that its body is in: where nothing else changes its counts stand apart.
CREATE TABLE returned (
  sequence    INTEGER PRIMARY KEY,
  deliveries  INTEGER NOT NULL,
  failures    INTEGER NOT NULL,
  assignments INTEGER NOT NULL,
  proof       INTEGER NOT NULL
) STRICT;
