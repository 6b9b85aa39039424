"""Sums, copies, activations and dropout."""
