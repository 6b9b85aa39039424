"""Softmax, loss, and the end of a network."""
