"""The process without rights that answers browsers and Prometheus, and what zvaultd tells it."""
