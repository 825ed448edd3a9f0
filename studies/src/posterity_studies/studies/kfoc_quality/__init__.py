"""How close Kronecker curvatures come to the Fisher information, and what joining K-FOC's batches greedily costs."""
