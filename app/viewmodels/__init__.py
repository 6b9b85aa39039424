"""Core's plain data as Qt sees it."""
