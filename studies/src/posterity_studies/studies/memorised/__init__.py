"""Networks that have memorised their training data, and no validation data: what `pt.posterior` makes of them."""
