"""Why something is as it is with a dataset or snapshot, by the reasons that the decisions about it give."""
