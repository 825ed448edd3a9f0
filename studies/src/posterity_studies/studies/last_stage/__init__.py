"""Few pictures of each class on ResNet-50's last stage: the prior that ImageNet left, an isotropic one, and plain training."""
