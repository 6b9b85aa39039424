"""The four pages of the window: widgets without logic."""
