"""How long a test waits for what must come at last."""

PATIENCE = 60.0
"""Seconds. It bounds nothing that a test is about: a machine may be slow, or stand still for some seconds. A test that
is about how long something takes has it wait, if it is broken, for more than this."""

FOR_EVER = 600.0
"""Seconds of what must not be waited for: whoever waits for it all the same is found to, for it is ``PATIENCE`` over."""
