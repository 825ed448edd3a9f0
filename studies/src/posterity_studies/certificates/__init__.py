"""Certificates at 95 % on real data, beside hold-out bounds and test errors."""

from posterity_studies.certificates.declaration import CERTIFICATES

__all__ = ["CERTIFICATES"]
