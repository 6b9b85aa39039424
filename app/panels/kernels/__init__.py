"""The place where every kernel is proved, timed and read."""
