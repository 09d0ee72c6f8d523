"""zvault backs up ZFS into pools on storage that is big, cheap, redundant and slow."""

__version__ = "0.1.0"
