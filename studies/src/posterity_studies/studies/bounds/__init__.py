"""The paper's ladder of bounds on NotMNIST (its Fig. 2a), with certificates beside its estimates."""
