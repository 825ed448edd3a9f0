"""Variational inference beside Laplace in function space, at the same strength of the prior."""
