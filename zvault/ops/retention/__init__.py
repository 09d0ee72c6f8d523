"""Use cases of retention: prune, holds."""
