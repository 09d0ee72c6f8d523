"""The parts of the context: what is given, what is on record, the clients of ZFS, what is under way."""
