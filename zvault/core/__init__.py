"""Decisions only: no I/O, no clock, no globals. What goes in is data, what comes out is data with its reason."""
