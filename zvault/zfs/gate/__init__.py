"""What another host sends, checked before ZFS gets it: streams, record by record, and resume tokens."""
