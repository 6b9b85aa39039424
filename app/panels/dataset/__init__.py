"""The Dataset page: classes, quality, split, augmentation, and the photo grid."""
