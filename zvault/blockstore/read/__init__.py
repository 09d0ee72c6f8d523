"""Reading from a block store: fetches, read-ahead and the local cache."""
