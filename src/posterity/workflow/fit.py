"""What learning leaves behind: a network, its prior and posterior, and how to predict with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from posterity.blocks import evaluating
from posterity.curvature import Curvature, Data, Likelihood
from posterity.curvature.batches import Batch, Inputs, input_batches
from posterity.gaussian import Gaussian
from posterity.gaussian.gaussian import check_frozen
from posterity.kernel import Calibration, Choice, FunctionSpace, Link, Moments, Networks, moments_of
from posterity.laplace import History, Scales
from posterity.pacbayes import FAMILY, Certificate, certify
from posterity.predictive import Prediction, predict
from posterity.predictive.linearised import output_moments
from posterity.predictive.prediction import from_moments


@dataclass(frozen=True)
class Fit:
    """What learning left behind: the network, where it came from, and how sure it is.

    Two posteriors stand side by side. `function` speaks of outputs: exact for few examples, and what `predict` uses where it is
    there. `posterior` is a Gaussian over weights: for files, for the next task's prior, and for certificates, which
    speak of networks drawn from it. Without a prior, predictions of classes are those of trained `networks`.
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
    networks: Networks | None = None
    """Trained networks that predictions are averaged over, where there is no posterior in function space."""

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
        if method is None and not options and (self.function is not None or self.networks is not None):
            check_frozen(self.posterior, self.model)
            like = next(self.model.parameters())
            inputs = input_batches(x, batch_size, like.device)
            with torch.inference_mode(False), torch.no_grad(), evaluating(self.model):
                moments = self._moments(inputs)
                kind: tuple[Likelihood, Link] = (self.likelihood, "probit")
                if self.function is not None:
                    kind = (self.function.likelihood, self.function.link)
                return from_moments(moments, *kind, generator=generator).to(like.dtype)
        given: dict[str, Any] = {"batch_size": batch_size, "generator": generator} | options
        if method != "sampled":
            given = {"calibration": self.calibration} | given
        return predict(self.model, self.posterior, x, self.likelihood, method=method or "linearised", **given)

    def _moments(self, inputs: list[Batch]) -> list[Moments]:
        """Normal outputs of all that is averaged over."""
        if self.function is not None:
            return self.function.moments(self.model, inputs)
        assert self.networks is not None
        # Trained networks say nothing of inputs unlike all others: that is left to the posterior.
        found = [output_moments(self.model, self.posterior, batch) for batch in inputs]
        mean, covariance = torch.cat([m for m, _ in found]).double(), torch.cat([c for _, c in found])
        around = Moments(0.0, mean, covariance, Calibration(), 1.0, self.calibration.usual)
        return [around, *moments_of(self.networks, self.model, inputs)]

    def certify(self, data: Data, confidence: float = 0.95, **options: Any) -> Certificate:
        """A risk bound that holds with the stated probability: `pt.certify` with this fit's posterior and prior.

        The data may be what was learned from here, if the prior has not seen it. Of four methods (networks drawn from the
        posterior, by two rules, or from the prior, or at the prior's mean) the tightest is taken and paid for; the certificate
        says of which predictor it speaks. With `methods=` another family is declared.
        """
        options = {"methods": FAMILY} | options
        return certify(self.model, self.posterior, self.prior, data, confidence, self.likelihood, **options)
