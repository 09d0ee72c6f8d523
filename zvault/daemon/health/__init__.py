"""The daemon's judgement of health: what it knows, the verdicts, and what the journal is told of them."""
