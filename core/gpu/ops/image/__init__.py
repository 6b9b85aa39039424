"""The network's input: augmentation and normalisation."""
