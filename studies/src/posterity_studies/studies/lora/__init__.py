"""LoRA adapters of a sentence model, and their posterior as the prior of the next labelled text task."""
