"""Ceph RBD images."""
