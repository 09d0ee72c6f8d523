"""A block device in an object store, made for ZFS: docs/reference/blockstore-format.md tells how it lies there."""
