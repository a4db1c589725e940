"""The commands: analyze, compare and simulate. Each reads its arguments, runs the job and says what it wrote."""
