"""Where exact algebra changes the picture: sums beside a single pair, one number beside scales per layer."""
