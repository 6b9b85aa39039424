"""What runs outside the window's process."""
