"""The screen of ``zvaultctl browse``: where somebody is (state), how it is drawn (frame), who is asked (feed)."""
