"""What a user would try first: other ways to be sure of a network, each as its authors use it."""
