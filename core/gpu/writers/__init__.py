"""From the steps of a program to launches: where each array lies, which kernel, tile and grid."""
