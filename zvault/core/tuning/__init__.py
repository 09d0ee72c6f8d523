"""Decisions about record sizes, module parameters and queues."""
