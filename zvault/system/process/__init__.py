"""Child processes: every program that zvault starts is started here."""
