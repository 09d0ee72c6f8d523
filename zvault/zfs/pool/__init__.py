"""Pools: zpool, events, labels, module parameters, statistics."""
