"""Use cases that prove a backup: compare, verify, restore drills."""
