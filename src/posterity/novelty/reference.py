"""What is known, in a form that new inputs can be compared with: several scores, one p-value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from posterity.brief import brief
from posterity.curvature import Likelihood
from posterity.errors import BadData, NoData, SizeMismatch
from posterity.novelty.left_out import Features, LeftOutInputs, Moments, belongs, joined, thinned
from posterity.novelty.moments import RelativeVariance, of_outputs
from posterity.novelty.neighbours import Neighbourhood, names
from posterity.novelty.ranks import Ranks
from posterity.novelty.scoring import VARIANCE, scores_of, scores_of_left_out

LIMIT = 512
"""Known inputs that are kept."""
BUDGET = 1_000_000
"""Bytes that their features take in a file."""
FEWEST = 16
"""Known inputs that are kept even where they take more."""
OWN = 2.0
"""How much the predictor's own scores count beside each distance: study unknown-inputs, left-one-setting-out."""


@dataclass(frozen=True, eq=False)
class Reference:
    """Known inputs, and the scores of known inputs that were left out.

    The rule (Fisher's, recalibrated): each score becomes −ln p among the left-out inputs, these are added up, the predictor's
    own twice, and the sum is ranked among the sums of left-out inputs. Its p-value is uniform on new known inputs whatever
    the scores have in common.
    `.unknown` is one minus it. Study unknown-inputs chose the rule; no single score is safe.
    """

    __repr__ = brief

    rows: Mapping[str, Float[Tensor, "n _"]]
    """Features of known inputs by layer, in half precision, divided by `sizes`; none where they were to be left out."""
    sizes: Mapping[str, float]
    neighbourhoods: Mapping[str, Neighbourhood]
    ranks: Mapping[str, Ranks]
    """Of each score at known inputs that were left out."""
    joint: Ranks
    """Of the sum of all −ln p at the same inputs."""
    moments: tuple[str, ...]
    """Scores that the predictor gives."""
    source: bool = False
    """Whether inputs of the source count as known."""
    alone: Ranks | None = None
    """Of the sums of the scores that need no feature, for `without_features`; None where there is none."""
    _variance: RelativeVariance = field(init=False, repr=False)
    _together: Ranks = field(init=False, repr=False)

    @classmethod
    def of(
        cls,
        known: Features,
        left_out: Sequence[LeftOutInputs],
        *,
        source: Features | None = None,
        limit: int = LIMIT,
        budget: int = BUDGET,
        keep_features: bool = True,
        generator: torch.Generator | None = None,
    ) -> Reference:
        """What new inputs are compared with.

        Args:
            known: features of known inputs under the network that predicts, by layer: what each layer is given, a row an input.
            left_out: the same inputs, each as seen by a network that was not trained on it: one entry for every fold, or one
                for inputs that were set aside. `by_folds` makes them of a network that was trained on none.
            source: features of the source's inputs under the same network. They count as known where the target's inputs
                lie among them, and not where the target is something else.
            limit: known inputs that are kept, a random choice of all.
            budget: bytes that their features may take.
            keep_features: whether any are kept; without them only the predictor's own scores are left.
            generator: draws which are kept.
        Returns:
            A `Reference`; `.missing` says what it lacks.
        Raises:
            NoData: if there is neither a layer nor a score.
            SizeMismatch: if layers or scores differ between the arguments.
        """
        moments = tuple(left_out[0].moments) if left_out else ()
        if not known and not moments:
            raise NoData(
                "a reference needs features of known inputs, or scores of inputs that were left out: both are empty."
            )
        _check(known, left_out, moments)
        used = bool(source) and bool(left_out) and belongs(left_out, source or {})
        width = sum(x.shape[1] for x in known.values())
        count = max(min(limit, budget // (2 * max(width, 1))), FEWEST)
        draw = torch.Generator().manual_seed(0) if generator is None else generator
        rows: dict[str, Tensor] = {}
        sizes: dict[str, float] = {}
        spaces: dict[str, Neighbourhood] = {}
        if keep_features and known:
            kept = thinned(joined(known, source) if used and source else known, count, draw)
            for layer, x in kept.items():
                sizes[layer] = float(x.abs().max().clamp_min(1e-30)) / 1024
                rows[layer] = (x.double() / sizes[layer]).half().cpu()
                spaces[layer] = Neighbourhood.of(rows[layer].double() * sizes[layer])
        called = [name for layer in spaces for name in names(layer)] + list(moments)
        compared = len(next(iter(rows.values()))) if rows else 0
        columns = scores_of_left_out(left_out, moments, list(spaces), source if used else None, count, compared, draw)
        columns = columns[columns.isfinite().all(1)]
        if len(columns) < 2:  # a single one says nothing of how much known inputs differ
            columns = columns[:0]
        ranks = [Ranks.of(column) for column in columns.T]
        free = [called.index(name) for name in moments if name != VARIANCE]
        alone = _joint([ranks[i] for i in free], columns[:, free], len(free)) if free else None
        joint = _joint(ranks, columns, len(moments))
        return cls(rows, sizes, spaces, dict(zip(called, ranks, strict=True)), joint, moments, used, alone)

    def without_features(self) -> Reference | None:
        """The same without a number of any single input: the scores of the outputs are left. None if there is none."""
        if self.alone is None:
            return None
        free = tuple(name for name in self.moments if name != VARIANCE)
        ranks = {name: self.ranks[name] for name in free}
        return Reference({}, {}, {}, ranks, self.alone, free, False, self.alone)

    @property
    def count(self) -> int:
        """Left-out known inputs that p-values rest on."""
        return self.joint.count

    @property
    def missing(self) -> tuple[str, ...]:
        """What this reference lacks, in sentences."""
        lacks = []
        if not self.rows:
            lacks.append(
                "features of known inputs were left out: unknown inputs are found by the predictor's own scores alone "
                f"({', '.join(self.moments)}), which miss those that it is sure of."
            )
        if self.count < 2:
            lacks.append(
                "no known inputs were left out, so there is no scale to call anything unusual by: every input counts as known."
            )
        elif self.count < 19:
            lacks.append(
                f"{self.count} known inputs were left out: false-alarm rates below {1 / (self.count + 1):.0%} are extrapolated."
            )
        return tuple(lacks)

    @property
    def layers(self) -> tuple[str, ...]:
        """Whose inputs are compared; the last is what the head reads."""
        return tuple(self.rows)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_together", Ranks.together(list(self.ranks.values())))
        # At once: what is computed while a network is exported is no number that could be kept.
        if VARIANCE in self.moments and self.rows:
            last = self.layers[-1]
            object.__setattr__(self, "_variance", RelativeVariance.of(self.rows[last].double() * self.sizes[last]))

    def of_outputs(
        self, features: Features, outputs: Float[Tensor, "m *outputs"], likelihood: Likelihood
    ) -> Float[Tensor, "m"]:
        """`unknown` from what a network was seen to do: the inputs of its layers, and its outputs.

        One number an input between 0 and 1; 1 where anything is not finite.
        """
        moments = of_outputs(outputs.cpu(), likelihood) if set(self.moments) - {VARIANCE} else {}
        if VARIANCE in self.moments:
            moments[VARIANCE] = self._variance(features[self.layers[-1]].detach().cpu())
        return self.unknown(features, moments)

    def p(self, features: Features, moments: Moments) -> Float[Tensor, "m"]:
        """The one p-value of each input; zero where a feature or score is not finite.

        Args:
            features: what each layer of the reference is given, for the new inputs.
            moments: the scores that the predictor gives, by the names it gave them before.
        Returns:
            float64 in [0, 1], uniform on new known inputs.
        """
        columns = self._columns(features, moments)
        total = _total(self._together, columns.nan_to_num(0.0, 0.0, 0.0), len(self.moments))
        return torch.where(columns.isfinite().all(1), self.joint.p(total), 0.0)

    def unknown(self, features: Features, moments: Moments) -> Float[Tensor, "m"]:
        """One minus the p-value: near 1 for inputs unlike those that are known."""
        return 1 - self.p(features, moments)

    def checked(self, features: Features) -> Features:
        """The features of new inputs, if they are of the form of the known ones.

        Raises:
            SizeMismatch: if not.
        """
        for layer, space in self.neighbourhoods.items():
            if layer not in features:
                raise SizeMismatch(
                    f'features of layer "{layer}" are missing: the reference holds {list(self.neighbourhoods)}.'
                )
            if features[layer].ndim != 2 or features[layer].shape[1] != space.width:
                raise SizeMismatch(
                    f'layer "{layer}" is given rows of {space.width} numbers, not {tuple(features[layer].shape[1:])}: '
                    "the inputs have another form than those that are known."
                )
        return features

    def _columns(self, features: Features, moments: Moments) -> Tensor:
        return scores_of(self.neighbourhoods, self.moments, self.checked(features), moments)


def alarm(unknown: Float[Tensor, "m"], rate: float = 0.05) -> Bool[Tensor, "m"]:
    """Which inputs to call unknown, if a share of `rate` of the known ones may be called so."""
    if not 0 < rate < 1:
        raise ValueError(f"a false-alarm rate lies between 0 and 1, not {rate}")
    return unknown >= 1 - rate


def _total(ranks: Ranks, columns: Tensor, own: int, *, among: bool = False) -> Tensor:
    """The sum of −ln p over all scores; the last `own` columns are the predictor's own scores."""
    weights = [1.0] * (columns.shape[1] - own) + [OWN] * own
    scale = torch.tensor(weights, dtype=torch.float64)[:, None]
    return (scale * ranks.nats(columns.T, among=among)).sum(0)


def _joint(ranks: Sequence[Ranks], columns: Tensor, own: int) -> Ranks:
    """Ranks of the sums of scores that left-out inputs have."""
    return Ranks.of(_total(Ranks.together(ranks), columns, own, among=True) if len(columns) else columns.new_empty(0))


def _check(known: Features, left_out: Sequence[LeftOutInputs], moments: tuple[str, ...]) -> None:
    for part in left_out:
        if set(part.features) != set(known) or set(part.known) != set(known) or set(part.moments) != set(moments):
            raise SizeMismatch(
                f"known inputs have layers {sorted(known)} and scores {sorted(moments)}, a left-out part "
                f"{sorted(part.features)}, {sorted(part.known)} and {sorted(part.moments)}: give the same ones everywhere."
            )
    for layer, x in known.items():
        if x.ndim != 2 or len(x) == 0 or not bool(torch.isfinite(x).all()):
            raise BadData(
                f'features of layer "{layer}" are {tuple(x.shape)}: a finite row for each known input is needed.'
            )
