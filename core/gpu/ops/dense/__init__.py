"""Dense layers."""
