"""How many images a prior needs: MNIST → NotMNIST, sampled predictives over γ and τ (the paper's Figures 2b and 7)."""
