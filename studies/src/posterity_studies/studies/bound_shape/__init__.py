"""The shape of the bound over α and β, approximated and true (the paper's Figure 6)."""
