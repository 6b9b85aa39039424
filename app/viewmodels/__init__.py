"""Core's plain data as Qt models."""
