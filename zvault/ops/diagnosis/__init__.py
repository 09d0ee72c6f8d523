"""Use cases that look for what is wrong or slow: doctor, fit, observations."""
