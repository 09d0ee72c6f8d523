"""Decisions about time: schedules, retention, scrubs, retries, timeouts, sleep."""
