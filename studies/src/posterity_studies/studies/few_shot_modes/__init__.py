"""Few shots as in the paper's Section 4.3: networks trained to a mode under isotropic and learned priors, and draws around it."""
