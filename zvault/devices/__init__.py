"""Block devices below a vault's pool, layer by layer: up, down, probe."""
