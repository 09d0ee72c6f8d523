"""Decisions about what to send where: lineage, plan, order, lag."""
