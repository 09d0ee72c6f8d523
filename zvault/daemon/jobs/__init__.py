"""The kinds of jobs that zvaultd runs."""
