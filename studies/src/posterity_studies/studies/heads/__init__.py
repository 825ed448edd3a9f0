"""Few labels on frozen features: one head for all, names of classes as a prior, and which label next."""
