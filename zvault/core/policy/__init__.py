"""Decisions about time: schedules, retention, scrubs, backoff, timeouts, sleep."""
