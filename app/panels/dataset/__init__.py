"""The place of the photos: classes, health, split, augmentation, and the grid."""
