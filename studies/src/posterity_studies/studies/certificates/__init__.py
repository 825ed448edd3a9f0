"""Certificates at 95 % on real data, beside hold-out bounds and test errors."""
