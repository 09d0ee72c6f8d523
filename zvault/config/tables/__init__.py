"""The tables of zvault.toml, one file each."""
