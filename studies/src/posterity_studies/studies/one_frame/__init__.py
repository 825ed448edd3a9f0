"""One eigenframe with values beside the nearest pair, for sums of several curvatures and a floor."""
