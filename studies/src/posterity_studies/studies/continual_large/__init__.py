"""A stream of six picture tasks on ResNet-50: columns with the prior of ImageNet, isotropic priors and plain columns."""
