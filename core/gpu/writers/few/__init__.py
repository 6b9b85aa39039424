"""Launches of one photo, whose layers have few pixels: several steps in one, all loads of a block at once."""
