"""What runs a study, keeps its results and shows them; it knows nothing of any study in particular."""
