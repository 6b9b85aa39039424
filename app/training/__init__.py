"""The training process, seen from the window."""
