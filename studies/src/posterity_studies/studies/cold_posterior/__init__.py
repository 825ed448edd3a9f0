"""How warm a posterior may be before its draws lose accuracy (the paper's Figure 2c and Figure 8, left)."""
