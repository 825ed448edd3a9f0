"""Unknown inputs: which scores find them, which rule joins the scores, and how often known inputs are called unknown."""
