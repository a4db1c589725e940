"""A journal that several machines have: what is committed, as entries of a log."""
