"""The training process as seen by the window."""
