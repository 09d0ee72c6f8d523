"""Tells people of what is wrong: looks, keeps what was told, and has it sent."""
