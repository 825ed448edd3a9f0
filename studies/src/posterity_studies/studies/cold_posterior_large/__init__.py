"""ResNet-50 on a part of CIFAR-10: draws around the mode over temperatures, and predictives that are linear in the weights."""
