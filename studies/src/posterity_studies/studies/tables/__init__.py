"""Small tables through the estimators: a stack of plain models beside each rival that a user would try first."""
