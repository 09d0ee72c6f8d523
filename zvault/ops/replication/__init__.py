"""Use cases of a backup: plan, transfer, apply changes, guard the base."""
