"""What learning leaves behind: a network, its prior and posterior, and one predictor that speaks for them."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn

from posterity.blocks import Replicas
from posterity.curvature import Categorical, Curvature, Likelihood
from posterity.data import Data
from posterity.data.batches import Inputs, input_batches
from posterity.data.examples import TrainingSet
from posterity.gaussian import Gaussian
from posterity.heads import Worth
from posterity.kernel import Link, StrengthChoice
from posterity.laplace import History, Scales
from posterity.novelty import Reference
from posterity.pacbayes import FAMILY, Certificate, certify
from posterity.predictive import Prediction, predict
from posterity.predictive.module import as_module
from posterity.predictive.predictor import Predictor
from posterity.predictive.sets import LeftOutScores
from posterity.workflow.file import save_fit
from posterity.workflow.plan import Plan
from posterity.workflow.predict_certificate import certify_predictions


@dataclass(frozen=True, eq=False, repr=False)
class Fit:
    """What learning left behind: the network, where it came from, and how sure it is.

    `predictor` makes all predictions: the exact posterior of few examples, averaged networks, a Gaussian over weights, or a
    stack of them; `plan` says which, and why. `posterior` is a Gaussian over weights: for files, for the next task's prior, and
    for certificates, which speak of networks drawn from it. Predictions use the fit's own copy of the weights: they come from
    any number of threads, and what happens to `model` afterwards does not change them.
    """

    model: nn.Module
    prior: Gaussian
    posterior: Gaussian
    curvature: Curvature
    scales: Scales
    history: History | None
    predictor: Predictor
    plan: Plan
    examples: TrainingSet | None = field(default=None, repr=False)
    """The training examples, where predictions are computed from them."""
    reference: Reference | None = field(default=None, repr=False)
    """What unknown inputs are found by; its `.missing` says what it lacks. None where there is nothing to compare with."""
    left_out: LeftOutScores | None = field(default=None, repr=False)
    """What sets and intervals are made from."""
    replicas: Replicas = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "replicas", Replicas(self.model))

    @property
    def likelihood(self) -> Likelihood:
        """What outputs mean, with the noise that was learned."""
        return self.predictor.likelihood

    @property
    def choice(self) -> StrengthChoice | None:
        """The strengths of the prior that were chosen, and from how many; None where nothing was chosen."""
        return self.predictor.chosen()

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, where they are known."""
        return self.posterior.card.classes

    def predict(
        self,
        x: Inputs,
        *,
        method: Literal["linearised", "sampled", "jvp"] | None = None,
        link: Link | None = None,
        samples: int = 100,
        batch_size: int = 250,
        generator: torch.Generator | None = None,
        keep_draws: bool = False,
    ) -> Prediction:
        """Calibrated predictions for new inputs. They are the same from every thread, and for the same inputs each time.

        Args:
            x: a tensor, an array, what the network takes by name, a Dataset or a DataLoader.
            method: None is the fit's own predictor. "linearised", "sampled" and "jvp" use the Gaussian over weights as it is, and
                find unknown inputs by what that carries.
            link: how normal outputs become probabilities; the fit's own by default.
            samples: draws by which uncertainty is taken apart.
            batch_size: inputs at a time.
            generator: the source of randomness.
            keep_draws: whether to keep outputs per draw.

        Returns:
            A `Prediction`: `.probs` (calibrated), `.labels`, or `.classes` by name, `.epistemic`, `.unknown` (from 0 to 1, high
            for inputs unlike the known ones) and `.alarm(rate)`; `.sets(0.9)` of classes or `.interval(0.9)` of a number.

        Example:
            >>> fit.predict(x).probs
        """
        options: dict[str, Any] = {"samples": samples, "generator": generator, "keep_draws": keep_draws}
        with self.replicas.one() as network:
            if method is None:
                inputs = input_batches(x, batch_size, network.like.device, network.like.dtype)
                found = self.predictor.predict(network, inputs, reference=self.reference, link=link, **options)
            else:
                kind = link or self.predictor.link
                found = predict(
                    network.module,
                    self.posterior,
                    x,
                    self.likelihood,
                    method=method,
                    link=kind,
                    batch_size=batch_size,
                    **options,
                )
        return found.but(names=self.classes, left_out=self.left_out if method is None else None)

    def certify(self, data: Data, confidence: float = 0.95, **options: Any) -> Certificate:
        """A risk bound that holds with the stated probability.

        Where this fit has learned nothing from the data, the bound is on what `predict` says: plain test data. Else the data may
        be what was learned from here, if the prior has not seen it: `pt.certify` with this fit's posterior and prior. Of four
        methods (networks drawn from the posterior, by two rules, or from the prior, or at the prior's mean) the tightest is taken
        and paid for. The certificate's first line says of which predictor it speaks. With `methods=` (or `passes=`, of draws)
        another family is declared, and `pt.certify_folds` learns again for a bound on what `predict` says.
        """
        asked = {
            name: value for name, value in options.items() if value is not None and name not in ("vouched", "progress")
        }
        own = not asked.keys() & {"methods", "passes"} and isinstance(self.likelihood, Categorical)
        found = certify_predictions(self, data, confidence, **asked) if own else None
        if found is not None:
            return found
        options = {"methods": FAMILY} | options
        return certify(self.model, self.posterior, self.prior, data, confidence, self.likelihood, **options)

    def ask(
        self, pool: Any, k: int, *, groups: Tensor | None = None, generator: torch.Generator | None = None
    ) -> Tensor:
        """Which rows of a pool to label next, the one that is worth the most first. For heads on features (`pt.head`).

        Labels that are expected to say most about the predictions of the whole pool (expected predictive information gain, to
        second order), each given those chosen before it. Memory does not grow with the pool.

        Args:
            pool: features of candidates: a tensor, an array or a memory map. Rows that were fitted to are no candidates.
            k: how many.
            groups: of candidates that belong together at most one is chosen.
            generator: draws the rows that stand for the pool.

        Raises:
            NoData: if no candidate is left.
            BadData: if there are fewer candidates than k.

        Example:
            >>> rows = fit.ask(pool, 10)
            >>> fit = fit.tell(pool[rows], labels)
        """
        from posterity.workflow.head import next_labels  # which makes fits

        return next_labels(self.predictor, pool, k, groups, generator)

    def worth(self, k: int, *, generator: torch.Generator | None = None) -> Worth:
        """How far k more labels, drawn like these, are expected to lower the NLL, with an interval. For heads with classes.

        The learning curve of left-out folds, continued as a power of the number of labels.

        Raises:
            NoData: if no class has three labels: no curve can be drawn.

        Example:
            >>> print(fit.worth(50))
        """
        from posterity.workflow.head import worth_of

        return worth_of(self.predictor, k, generator)

    def tell(self, x: Any, y: Any, *, groups: Tensor | None = None) -> Fit:
        """The head with further labels: a new fit to all examples, and equal to one. This fit stays as it is.

        A head is exact and cheap, so nothing is approximated. A network's posterior would not be: for it, learn again with all
        examples. Needs the training examples, which `save(examples=False)` leaves out.

        Args:
            x: features of the new examples.
            y: their labels, as `pt.head` takes them. Text may name a class that is new, unless names were the prior.
            groups: where the earlier examples had groups: those of the new ones, none of which was there before.

        Example:
            >>> fit = fit.tell(pool[rows], ["sports", "space"])
        """
        from posterity.workflow.head import with_labels

        return with_labels(self, x, y, groups)

    def save(self, path: str | os.PathLike[str], *, examples: bool = True) -> None:
        """Write one file with everything that predicts and certifies; `pt.load(path, model)` opens it in another process.

        It is written in one atomic step, and runs no code when it is opened. Where predictions of few examples are computed from
        them, **they are in the file**.

        Args:
            path: the file to write.
            examples: False leaves the training examples out, and all that is computed from one of them alone, for people who
                may not ship them. The mean stays exact; a covariance over many weights keeps its leading directions, which
                leaves it slightly too wide, never too narrow (the log and the file's header say by how much). Unknown inputs
                are then found by the outputs alone, which miss those that the network is sure of.

        Raises:
            NotStorable: if something of the fit has no place in a file.
            DiskFull: if there is no room; an older file of that name stays as it is.

        Example:
            >>> fit.save("letters.fit")
            >>> pt.load("letters.fit", model).predict(x).probs
        """
        save_fit(self, path, examples=examples)

    def module(self, *, unknown: bool = True) -> nn.Module:
        """The fit as one plain network: inputs → (probabilities, unknown), or of numbers (mean, variance, unknown).

        It says what `predict` says, up to rounding, and goes through `torch.export` and ONNX: for last layers, averaged networks
        and stacks of them, whose predictions take forward passes only.

        Args:
            unknown: False leaves `unknown` out, and the features of known inputs that only that needs.

        Raises:
            NotExportable: for posteriors over all layers, whose predictions take gradients; the message says what to do.

        Example:
            >>> torch.onnx.export(fit.module(), (x,), "letters.onnx", dynamo=True, dynamic_shapes=(({0: "n"},),))
        """
        return as_module(self.replicas.network, self.predictor, self.reference, unknown)

    def __repr__(self) -> str:
        names = self.classes
        classes = f", {len(names)} classes: {', '.join(names[:8])}{' …' if len(names) > 8 else ''}" if names else ""
        weights = sum(p.numel() for p in self.replicas.network.parameters())
        lines = [
            f"Fit of {type(self.model).__name__} ({weights:,} weights) to {self.curvature.count:,} examples{classes}",
            f"  predictor: {type(self.predictor).__name__}, {self.likelihood}",
            f"  plan: {self.plan}",
            f"  posterior over {len(self.posterior.blocks)} layers; it has seen {self.posterior.provenance.count:,} examples",
        ]
        return "\n".join(lines)
