"""NBD devices: the connection, and the servers that zvault starts."""
