"""Leave-one-out with one to five examples a class: one example alone, or one of every class at a time."""
