"""Decisions about damage, verification and healing."""
