"""The window. Only this package uses Qt; `core` holds the data and the work."""
