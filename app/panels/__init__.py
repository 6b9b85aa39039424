"""The four places of the window: widgets without logic."""
