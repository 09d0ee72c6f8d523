"""Use cases that get data back: find, restore datasets and files."""
