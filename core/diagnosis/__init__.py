"""Diagnosis: the model file, predictions, and how far they can be trusted."""
