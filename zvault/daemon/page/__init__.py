"""The status page: what zvaultd tells of itself for it, and how that becomes HTML."""
