"""Pools over windows."""
