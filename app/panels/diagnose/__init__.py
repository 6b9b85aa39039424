"""The page where new photos are diagnosed."""
