"""zfs, zpool and libzfs_core as typed calls. Every argv of these tools is built here."""
