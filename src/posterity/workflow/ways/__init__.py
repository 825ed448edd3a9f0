"""The ways to make a fit: each returns a candidate, which left-out examples weigh against others."""
