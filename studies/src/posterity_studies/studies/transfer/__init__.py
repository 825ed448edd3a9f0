"""Where a learned prior helps: small target sets, every prior's strength tuned on the same validation data."""
