"""Photos on disk: scanning, groups, splits, cache, augmentation and batches."""
