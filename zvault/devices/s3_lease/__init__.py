"""One writer for a bucket that only S3 guards: a lease in the bucket itself.

- lease_object.py: the object, how it is read and put, and when it is expired;
- takeover.py: who may take it;
- held_lease.py: its renewal;
- guard.py: the process that renews it, and kills the device's server before it expires;
- note.py: the note beside it, for hosts that share a vault.
"""
