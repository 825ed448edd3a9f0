"""Prediction sets and intervals from left-out predictions, beside split conformal with the same labels."""
