"""Tasks with known inputs, new inputs of the same kind, and inputs of another kind, as a network sees them."""

from posterity_studies.shared.known_inputs.networks import seen
from posterity_studies.shared.known_inputs.problems import LayerInputs, Problem
from posterity_studies.shared.known_inputs.rivals import RIVALS
from posterity_studies.shared.known_inputs.settings import SETTINGS, Setting, problem

__all__ = ["RIVALS", "SETTINGS", "LayerInputs", "Problem", "Setting", "problem", "seen"]
