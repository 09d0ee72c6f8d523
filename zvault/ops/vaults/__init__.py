"""A vault's life: up, use, down, sleep, takeover."""
