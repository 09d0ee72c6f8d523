"""zvaultctl: one file a verb group; render, output, narrate and progress decide what a person sees."""
