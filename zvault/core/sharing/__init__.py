"""Several hosts for one vault: which of them makes a run, when another takes over, and what each may do now."""
