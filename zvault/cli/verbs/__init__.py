"""The verbs of zvaultctl, one file a verb or group of verbs."""
