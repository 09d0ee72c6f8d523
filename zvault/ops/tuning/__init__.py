"""Use cases of tuning: parameters, measurements, the report."""
