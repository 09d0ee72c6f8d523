"""One use case a file: what the daemon does on a schedule and what zvaultctl asks for."""
