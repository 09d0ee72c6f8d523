"""What looks after a block store: check, repair, copy, info, and garbage collection without an engine."""
