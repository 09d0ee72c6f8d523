"""zvaultd: the long-lived process that schedules, runs, and tells."""
