"""Sends one message, in a process of its own, without rights and with a deadline."""
