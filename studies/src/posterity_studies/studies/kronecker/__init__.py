"""How well one Kronecker product stands in for a sum of them (the paper's convergence table and Figure 3)."""
