"""Training: the loop that yields events, checkpoints, history and the report."""
