"""What stands behind 'nbd =' and 'rbd =' in a device's table."""
