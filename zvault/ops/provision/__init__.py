"""Use cases before a vault exists: measure a device, create a pool."""
