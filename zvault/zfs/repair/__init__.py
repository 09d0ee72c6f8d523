"""What healing needs of ZFS: the error log, stream records, writing blocks."""
