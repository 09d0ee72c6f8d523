"""What zvaultd and zvaultctl tell each other: the documents of the API, by subject, and its routes.

A document is a TypedDict: the daemon's producers return it, zvaultctl reads it, and mypy checks the keys on both sides.
Times are seconds since the epoch, durations seconds, sizes bytes. None means "not known", never zero.

These modules do not import annotations from the module __future__: a TypedDict whose annotations are strings compiles
each of them when its module is imported, which takes ten times as long.
"""
