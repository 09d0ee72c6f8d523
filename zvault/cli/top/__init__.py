"""The screen of ``zvaultctl top``: what is known (state), how it is drawn (frame), where it comes from (feed)."""
