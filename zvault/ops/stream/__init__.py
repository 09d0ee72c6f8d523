"""One stream from source to vault: its route, its bandwidth, its slot."""
