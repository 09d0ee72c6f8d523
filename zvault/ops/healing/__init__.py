"""Use cases about damage: scrub, name what is damaged, heal."""
