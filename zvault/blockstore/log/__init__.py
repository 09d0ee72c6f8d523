"""The log of a block store: segments of data, and the local journal of what is not in the store yet."""
