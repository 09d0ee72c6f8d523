"""Whom to tell of what is wrong, when, and in which words."""
