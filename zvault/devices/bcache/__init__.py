"""bcache: a fast local device in front of a slow one."""
