"""zvaultd's metrics for Prometheus."""
