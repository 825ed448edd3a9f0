"""The numbers of every way to make a fit, in one place and passed in: steps, rates, grids, limits, where they were settled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from posterity.kernel.kernels import SHARED, SIDE


@dataclass(frozen=True)
class Training:
    """How each network of an average is trained, by Adam."""

    steps: int = 100
    lr: float = 2e-3
    dropped: float = 0.5
    """The share of inputs of linear layers that a step leaves out: few examples are soon overfitted without it."""
    batch_size: int | None = None
    """Of a step; None takes all examples at once."""
    from_scratch: bool = False
    """Whether it starts at its own weights, in training mode, with a rate that rises to `lr` and falls to zero. Else it starts at
    the prior's mean, with the statistics of norm layers as they are."""
    softened: float = 1.0
    """The power of the temperature that is used. An average is softer than any network that was scored."""
    unjudged: float = 1.0
    """The temperature of a network that nothing was left out of: one example a class."""


@dataclass(frozen=True)
class FromScratch:
    """Networks from scratch: more examples get more steps and fewer epochs, down to some twenty (study quality)."""

    steps: int = 400
    """On up to 1,000 examples."""
    peak: float = 3e-3
    least: float = 0.44
    """Of these steps for each thousand examples, where they are many."""
    unjudged: float = 2.0
    """As it is, a network that was trained on one example a class is sure of everything."""

    def training(self, count: int) -> Training:
        """The training for this number of examples."""
        thousands = max(1.0, count / 1000)
        steps = round(self.steps * max(thousands**0.5, self.least * thousands))
        return Training(steps, self.peak, 0.2, 128, from_scratch=True, softened=0.9, unjudged=self.unjudged)


@dataclass(frozen=True)
class ManyExamples:
    """One network on many examples: a rate that rises and falls, in small batches."""

    lr: float = 3e-3
    batch_size: int = 64
    epochs: int = 15

    def options(self) -> dict[str, Any]:
        """Options of `pt.train`."""
        return {"schedule": "one-cycle", "lr": self.lr, "batch_size": self.batch_size, "epochs": self.epochs}


@dataclass(frozen=True)
class SmallNetworks:
    """Siblings of a regression (study quality: three other sets, then two splits of UCI's)."""

    coarse: tuple[float, ...] = tuple(10.0**k for k in range(-5, 3))
    """Strengths of the prior, as multiples of the noise's precision."""
    fine: tuple[float, ...] = (0.3, 1.0, 3.0)
    """Multiples of the best of them, which are trained for longer."""
    long: int = 2500
    """Steps of Adam for fine strengths."""
    shorter: int = 5
    """How many times fewer for coarse ones."""
    at_once: int = 512
    """Examples a step."""
    lr: float = 1e-2
    """Of the first step; it falls to zero."""
    lr_of_many: float = 3e-2
    """More examples than an exact posterior takes bear larger steps, and need them."""


@dataclass(frozen=True)
class LastLayers:
    """An exact last layer."""

    refitted: int = 300
    """Up to so many examples are left out fold by fold, by refitting: the closed form flatters priors that are too weak."""
    some: int = 1000
    """Training examples that are left out where there are too many for all."""
    in_function_space: int = SHARED
    """Examples up to which it is computed in function space, where that is smaller."""
    dense: int = SIDE
    """Weights up to which its curvature is kept in full."""


@dataclass(frozen=True)
class InputModels:
    """Models of a table's inputs (study tables: sets for settling)."""

    network: int = 400
    """Examples up to which a network beside them is not worth its price."""
    process: int = 1500
    """Examples up to which a Gaussian process is."""
    trees: int = 5000
    """The same of trees."""
    boosted: int = 5
    """Classes up to which boosted trees are: each class has its own."""
    count: float = 1.0
    """The pseudo-count of every candidate: few left-out examples say little, and an average is rarely far behind the best."""
    least: float = 0.01
    """Smaller weights in the stack are dropped."""


@dataclass(frozen=True)
class Stacking:
    """Pseudo-counts of the candidates: how much each weighs before any example is left out.

    With one label a class nothing can be left out, and the shares of these numbers are the weights.
    """

    counts: Mapping[str, float] = field(
        default_factory=lambda: {
            "exact around the prior": 1.0,
            "networks from the prior": 1.0,
            "head alone": 0.5,
            "prior alone": 0.5,
            "as trained": 5.0,
            "structured": 1.0,
        }
    )
    unjudged: float = 2.0
    """The temperature of a head alone that nothing was left out of: features of a prior are less sure than those of encoders, on
    which the beliefs of `HeadRecipe` were settled (2.0 to 2.5 would be best on digits and letters of MNIST and NotMNIST)."""
    least: float = 0.02
    """Candidates of less weight are dropped: they change no prediction worth their price."""


@dataclass(frozen=True)
class Limits:
    """Sizes up to which a way is worth its price."""

    shared: int = SHARED
    """Examples of an exact posterior whose outputs share a kernel (a new head)."""
    side: int = SIDE
    """Examples times outputs of any other exact posterior."""
    numbers: int = 400_000_000
    """In the inputs of all examples that are held in memory (1.6 GB in float32)."""
    examples: int = 50_000
    """That are held in memory."""
    from_scratch: int = 5_000
    """Examples up to which six trainings from scratch are cheap, for a network that is not small."""
    products: float = 1e10
    """Of a forward pass over all examples, beyond which curvature of all layers of a trained network takes minutes."""
    large_network: int = 1_000_000
    """Weights beyond which they are not."""
    small_network: int = 20_000
    """Weights of a network that is cheap to train six times on any number of examples that are held in memory."""

    def exact(self, count: int, outputs: int, new_head: bool) -> bool:
        """Whether the exact posterior of so many examples is within reach."""
        return count <= self.shared if new_head else count * outputs <= self.side

    def words(self, new_head: bool) -> str:
        """The limit of the exact posterior in words."""
        return f"{self.shared:,} examples" if new_head else f"{self.side:,} examples times outputs"


@dataclass(frozen=True)
class Recipe:
    """One value for all ways."""

    from_prior: Training = Training()
    from_scratch: FromScratch = FromScratch()
    many_examples: ManyExamples = ManyExamples()
    aside: Training = Training(200, 1e-1, 0.0, from_scratch=True)
    """Of a network that does not predict: few steps, and large ones."""
    inputs: InputModels = InputModels()
    small_networks: SmallNetworks = SmallNetworks()
    last_layer: LastLayers = LastLayers()
    stacking: Stacking = field(default_factory=Stacking)
    limits: Limits = Limits()
