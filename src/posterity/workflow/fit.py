"""What learning leaves behind: a network, its prior and posterior, and how to predict with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from posterity.blocks import evaluating
from posterity.curvature import Curvature, Data, Likelihood
from posterity.gaussian import Gaussian
from posterity.gaussian.gaussian import check_frozen
from posterity.kernel import Calibration, Choice, FunctionSpace
from posterity.laplace import History, Scales
from posterity.pacbayes import FAMILY, Certificate, certify
from posterity.predictive import Prediction, predict
from posterity.predictive.inputs import Inputs, input_batches
from posterity.predictive.prediction import from_moments


@dataclass(frozen=True)
class Fit:
    """What learning left behind: the network, where it came from, and how sure it is.

    Two posteriors stand side by side. `function` speaks of outputs: exact for few examples, and what `predict` uses where it is
    there. `posterior` is a Gaussian over weights: for files, for the next task's prior, and for certificates, which
    speak of networks drawn from it.
    """

    model: nn.Module
    prior: Gaussian
    posterior: Gaussian
    curvature: Curvature
    scales: Scales
    history: History | None
    likelihood: Likelihood
    function: FunctionSpace | None = None
    calibration: Calibration = Calibration()  # noqa: RUF009 (frozen)
    """How wide and how soft the predictive of `posterior` is, where there is no posterior in function space."""

    @property
    def choice(self) -> Choice | None:
        """The strengths of the prior that were chosen, and from how many; None where nothing was chosen."""
        return None if self.function is None else self.function.choice

    def predict(
        self,
        x: Inputs,
        *,
        method: Literal["linearised", "sampled"] | None = None,
        batch_size: int = 250,
        generator: torch.Generator | None = None,
        **options: Any,
    ) -> Prediction:
        """Calibrated predictions for new inputs.

        Args:
            x: a tensor, an array, what the network takes by name, a Dataset or a DataLoader.
            method: None takes the best there is: the posterior in function space, else the linearised posterior.
                "linearised" and "sampled" use the Gaussian over weights.
            batch_size: inputs at a time.
            generator: the source of randomness.
            options: further options of `pt.predict`.

        Returns:
            A `Prediction`: `.probs` (calibrated), `.epistemic`, and `.unknown`, a score for inputs unlike the training data.

        Example:
            >>> fit.predict(x).probs
        """
        if self.function is not None and method is None and not options:
            check_frozen(self.posterior, self.model)
            inputs = input_batches(x, batch_size, next(self.model.parameters()).device)
            with torch.inference_mode(False), torch.no_grad(), evaluating(self.model):
                moments = self.function.moments(self.model, inputs)
                found = from_moments(moments, self.function.likelihood, self.function.link, generator=generator)
                return found.to(next(self.model.parameters()).dtype)
        given: dict[str, Any] = {"batch_size": batch_size, "generator": generator} | options
        if method != "sampled":
            given = {"calibration": self.calibration} | given
        return predict(self.model, self.posterior, x, self.likelihood, method=method or "linearised", **given)

    def certify(self, data: Data, confidence: float = 0.95, **options: Any) -> Certificate:
        """A risk bound that holds with the stated probability: `pt.certify` with this fit's posterior and prior.

        The data may be what was learned from here, if the prior has not seen it. Of four methods (networks drawn from the
        posterior, by two rules, or from the prior, or at the prior's mean) the tightest is taken and paid for; the certificate
        says of which predictor it speaks. With `methods=` another family is declared.
        """
        options = {"methods": FAMILY} | options
        return certify(self.model, self.posterior, self.prior, data, confidence, self.likelihood, **options)
