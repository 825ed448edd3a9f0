"""Decision trees as arrays. scikit-learn grows them; they predict, are stored and are exported without it.

Each tree is grown without one of the folds: all trees together predict, and a fold is judged by those that have not seen it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from posterity.errors import NotInstalled
from posterity.kernel.stacking import log_scores
from posterity.tables.model import ClassModel, NumberModel, TableFit, log_density, placed

Kind = Literal["forest", "boosted"]


@dataclass(frozen=True)
class TreesRecipe:
    """How trees are grown. Settled on the study `tables`' sets for settling."""

    forest: int = 40
    """Trees a fold."""
    leaf: int = 3
    """The least examples of a forest's leaf."""
    boosted: int = 40
    """Trees a fold (and a class)."""
    depth: int = 2
    rate: float = 0.15
    share: float = 0.7
    """Of the examples that a boosted tree sees; of the columns it sees half at each split."""
    mixed: tuple[float, ...] = (0.005, 0.02, 0.05, 0.1, 0.2)
    """Shares of the classes' frequencies in a forest's probabilities: no leaf knows that a class is impossible."""
    temperatures: tuple[float, ...] = (0.5, 0.7, 0.85, 1.0, 1.25, 1.6, 2.0, 3.0)
    widths: tuple[float, ...] = (0.0, 0.25, 0.5, 1.0, 1.5)
    """How much of the spread in a forest's leaves counts for the variance of a number."""
    floors: tuple[float, ...] = (0.01, 0.03, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2)
    """Variances beside it, in units of the squared errors that were left out."""


@dataclass(frozen=True, eq=False)
class Trees:
    """A sum of trees. Their nodes stand behind each other; a leaf is its own child."""

    roots: Int[Tensor, " trees"]
    feature: Int[Tensor, " nodes"]
    threshold: Float[Tensor, " nodes"]
    left: Int[Tensor, " nodes"]
    right: Int[Tensor, " nodes"]
    values: Float[Tensor, "nodes outputs"]
    start: Float[Tensor, " outputs"]
    depth: int

    @staticmethod
    def of(grown: Sequence[tuple[Any, Float[Tensor, "nodes outputs"]]], start: Float[Tensor, " outputs"]) -> Trees:
        """From scikit-learn's trees, and what each of their nodes adds."""
        sizes = [tree.node_count for tree, _ in grown]
        roots = torch.tensor([0, *np.cumsum(sizes)[:-1].tolist()])
        parts: dict[str, list[Tensor]] = {"feature": [], "threshold": [], "left": [], "right": []}
        for (tree, _), root in zip(grown, roots.tolist(), strict=True):
            leaf, own = torch.from_numpy(tree.children_left < 0), torch.arange(tree.node_count)
            for name, children in (("left", tree.children_left), ("right", tree.children_right)):
                parts[name].append(root + torch.where(leaf, own, torch.from_numpy(children)))
            parts["feature"].append(torch.from_numpy(tree.feature).clamp_min(0))
            parts["threshold"].append(torch.from_numpy(tree.threshold))
        arrays = {name: torch.cat(each) for name, each in parts.items()}
        values = torch.cat([value for _, value in grown])
        return Trees(roots, **arrays, values=values, start=start, depth=max(tree.max_depth for tree, _ in grown))

    @staticmethod
    def mean(parts: Sequence[Trees]) -> Trees:
        """The average of several sums as one."""
        offsets = np.cumsum([0, *(len(part.values) for part in parts)]).tolist()

        def moved(name: str) -> Tensor:
            return torch.cat([getattr(part, name) + offset for part, offset in zip(parts, offsets, strict=False)])

        return Trees(
            moved("roots"), torch.cat([p.feature for p in parts]), torch.cat([p.threshold for p in parts]), moved("left"),
            moved("right"), torch.cat([p.values for p in parts]) / len(parts), torch.stack([p.start for p in parts]).mean(0),
            max(p.depth for p in parts),
        )  # fmt: skip

    def __call__(self, x: Float[Tensor, "m d"]) -> Float[Tensor, "m outputs"]:
        """Inputs are compared in single precision, as scikit-learn does."""
        rows = x.float().double()
        node = self.roots.expand(rows.shape[0], -1)  # a size that export leaves open
        for _ in range(self.depth):
            goes_left = rows.gather(1, self.feature[node]) <= self.threshold[node]
            node = torch.where(goes_left, self.left[node], self.right[node])
        return self.start + self.values[node].sum(1)


@dataclass(frozen=True, eq=False)
class TreeClasses(ClassModel):
    """Logits from trees: their own, or (a forest) those of its probabilities mixed with frequencies, over a temperature."""

    trees: Trees
    frequencies: Float[Tensor, " classes"]
    mixed: float
    """0: the sums are logits."""
    temperature: float

    def logits(self, x: Float[Tensor, "m d"]) -> Float[Tensor, "m classes"]:
        return self.from_sums(self.trees(x))

    def from_sums(self, sums: Float[Tensor, "m classes"]) -> Float[Tensor, "m classes"]:
        """Log probabilities from what the trees say."""
        if self.mixed:
            sums = ((1 - self.mixed) * sums + self.mixed * self.frequencies).log()
        return (sums / self.temperature).log_softmax(1)


@dataclass(frozen=True, eq=False)
class TreeNumbers(NumberModel):
    """Means and variances from trees: a constant variance, and (a forest) a multiple of the spread in its leaves."""

    trees: Trees
    """Of targets with mean 0 and variance 1."""
    width: float
    floor: float
    mean: float = 0.0
    scale: float = 1.0

    def numbers(self, x: Float[Tensor, "m d"]) -> tuple[Float[Tensor, " m"], Float[Tensor, " m"], Float[Tensor, " m"]]:
        mean, variance = self.from_sums(self.trees(x))
        return self.mean + self.scale * mean, torch.zeros_like(mean), self.scale**2 * variance

    def from_sums(self, sums: Float[Tensor, "m outputs"]) -> tuple[Float[Tensor, " m"], Float[Tensor, " m"]]:
        """Mean and variance from what the trees say."""
        mean = sums[:, 0]
        spread = (sums[:, -1] - mean.square()).clamp_min(0) if sums.shape[1] == 2 else torch.zeros_like(mean)
        return mean, self.width * spread + self.floor


def fit_trees(
    kind: Kind,
    x: Float[Tensor, "n d"],
    y: Tensor,
    folds: Int[Tensor, " n"],
    classes: int,
    recipe: TreesRecipe | None = None,
) -> TableFit:
    """Trees for numbers (no `classes`) or for classes, and what they say of examples that were left out.

    Raises:
        NotInstalled: without scikit-learn, which grows them.
    """
    recipe = recipe or TreesRecipe()
    mean, scale = (0.0, 1.0) if classes else (float(y.mean()), float(y.std(correction=0)) or 1.0)
    targets = y if classes else (y - mean) / scale
    judged = (folds >= 0).nonzero().flatten()
    grown, sums = [], None
    for k in folds[judged].unique().tolist():
        kept, of = (folds != k).nonzero().flatten(), (folds == k).nonzero().flatten()
        grown.append(_grown(kind, x[kept], targets[kept], classes, k, recipe))
        found = grown[-1](x[of])
        sums = found.new_zeros(len(y), found.shape[1]) if sums is None else sums
        sums[of] = found
    assert sums is not None
    trees, sums, targets = Trees.mean(grown), sums[judged], targets[judged]
    options: list[tuple[ClassModel | NumberModel, Tensor]] = []
    if classes:
        frequencies = y.bincount(minlength=classes).double() / len(y)
        for mixed in recipe.mixed if kind == "forest" else (0.0,):
            for temperature in recipe.temperatures:
                model = TreeClasses(trees, frequencies, mixed, temperature)
                options.append((model, log_scores(model.from_sums(sums), targets)))
    else:
        squared = float((sums[:, 0] - targets).square().mean())
        for width in recipe.widths if kind == "forest" else (0.0,):
            for floor in recipe.floors:
                numbers = TreeNumbers(trees, width, floor * squared + 1e-8)
                options.append((numbers, log_density(targets, *numbers.from_sums(sums))))
    best, scores = max(options, key=lambda option: float(option[1].mean()))
    if isinstance(best, TreeClasses):
        return TableFit(best, placed(scores, judged, len(y)))
    assert isinstance(best, TreeNumbers)
    centre, variance = best.from_sums(sums)
    return TableFit.of_numbers(
        replace(best, mean=mean, scale=scale), y, judged, (mean + scale * centre, scale**2 * variance)
    )


def _grown(kind: Kind, x: Tensor, y: Tensor, classes: int, seed: int, recipe: TreesRecipe) -> Trees:
    try:
        from sklearn import ensemble
    except ImportError:
        raise NotInstalled("scikit-learn grows trees and is not installed: pip install 'scikit-learn>=1.6'.") from None
    goal = "Classifier" if classes else "Regressor"
    rows, targets = x.float().numpy(), y.numpy()
    if kind == "forest":
        columns = {"max_features": "sqrt" if classes else 1.0}
        forest = getattr(ensemble, f"ExtraTrees{goal}")(
            recipe.forest, min_samples_leaf=recipe.leaf, random_state=seed, **columns
        )
        trees = [one.tree_ for one in forest.fit(rows, targets).estimators_]
        if classes:
            values = [_among(tree.value[:, 0], forest.classes_, classes) for tree in trees]
        else:
            means = [torch.from_numpy(tree.value[:, 0, 0]) for tree in trees]
            values = [
                torch.stack([m, m.square() + torch.from_numpy(t.impurity)], 1)
                for m, t in zip(means, trees, strict=True)
            ]
        grown = [(tree, value / len(trees)) for tree, value in zip(trees, values, strict=True)]
        return Trees.of(grown, torch.zeros(values[0].shape[1], dtype=torch.float64))
    boosted = getattr(ensemble, f"GradientBoosting{goal}")(
        n_estimators=recipe.boosted, max_depth=recipe.depth, learning_rate=recipe.rate, subsample=recipe.share,
        max_features=0.5, random_state=seed,
    ).fit(rows, targets)  # fmt: skip
    start = torch.as_tensor(boosted._raw_predict_init(rows[:1])[0]).double()
    outputs, grown = len(start), []
    for stage in boosted.estimators_:
        for k, one in enumerate(stage):
            value = torch.zeros(one.tree_.node_count, outputs, dtype=torch.float64)
            value[:, k] = recipe.rate * torch.from_numpy(one.tree_.value[:, 0, 0])
            grown.append((one.tree_, value))
    if not classes:
        return Trees.of(grown, start)
    if outputs == 1:  # the logit of the second class
        grown = [(tree, torch.cat([torch.zeros_like(value), value], 1)) for tree, value in grown]
        start = torch.cat([torch.zeros_like(start), start])
    least = torch.full((classes,), float(start.min()) - 2, dtype=torch.float64)
    least[torch.as_tensor(boosted.classes_)] = start
    return Trees.of([(tree, _among(value, boosted.classes_, classes)) for tree, value in grown], least)


def _among(values: Any, present: Any, classes: int) -> Float[Tensor, "nodes classes"]:
    """Columns of the classes that are present, among all."""
    found = torch.zeros(len(values), classes, dtype=torch.float64)
    found[:, torch.as_tensor(present).long()] = torch.as_tensor(values).double()
    return found
