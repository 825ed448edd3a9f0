"""Calibration after few images: eight methods tuned on the same images, NLL, ECE and out-of-distribution images."""
