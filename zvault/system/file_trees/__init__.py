"""Trees of files, copied and compared by a child process whose threads keep a slow pool's device busy."""
