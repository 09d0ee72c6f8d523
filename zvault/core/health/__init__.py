"""Whether a backup, a vault or the daemon is well, and what is wrong with it if not."""
