"""One writer for a bucket that only S3 guards: a lease in the bucket itself."""
