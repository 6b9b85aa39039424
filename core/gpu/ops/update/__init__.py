"""The optimizer, and what runs before and after it."""
