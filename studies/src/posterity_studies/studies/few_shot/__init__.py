"""Few pictures of each class on ResNet-50's features: an exact head against what needs a validation set."""
