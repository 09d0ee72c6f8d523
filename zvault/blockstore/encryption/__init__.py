"""Authenticated encryption of all that a block store puts: keys, pieces of objects, and a store that does it."""
