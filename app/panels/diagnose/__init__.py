"""The place where new photos are diagnosed."""
