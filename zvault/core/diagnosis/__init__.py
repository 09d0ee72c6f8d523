"""Decisions about what is wrong or slow: the doctor, stalls, hung tasks, drift."""
