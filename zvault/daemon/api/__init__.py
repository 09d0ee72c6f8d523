"""zvaultd's HTTP API on a Unix socket."""
