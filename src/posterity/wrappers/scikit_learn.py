"""Estimators for scikit-learn: `fit` learns a posterior, `predict_proba` averages over it, `predict_set` promises a coverage."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from posterity.curvature import Categorical, GaussianNoise
from posterity.data.hashes import by_chance, example_hashes, seen
from posterity.data.near_copies import COPIED, families, repeats_by_chance
from posterity.data.provenance import Provenance
from posterity.errors import BadData, NotHeldOut, NotInstalled
from posterity.gaussian import Gaussian
from posterity.gaussian.plain import parse
from posterity.pacbayes.examples import joined
from posterity.pacbayes.refusals import near_known
from posterity.predictive import Prediction
from posterity.predictive.sets import class_sets, split_intervals, split_threshold
from posterity.workflow import Fit, learn
from posterity.workflow.file import handed_down
from posterity.workflow.predict_certificate import known_of
from posterity.wrappers.estimator_files import load_estimator, save_estimator

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import _check_sample_weight, check_is_fitted, column_or_1d, validate_data
except ImportError as error:
    raise NotInstalled("scikit-learn 1.6 or newer is needed here: pip install 'scikit-learn>=1.6'.") from error

Network = Callable[[int, int], nn.Module]
Prior = Gaussian | str | os.PathLike[str]


def mlp(inputs: int, outputs: int, hidden_sizes: Sequence[int]) -> nn.Module:
    """The built-in network: rectified linear units between linear layers."""
    sizes = [inputs, *hidden_sizes]
    layers: list[nn.Module] = []
    for before, after in pairwise(sizes):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(sizes[-1], outputs))


class _Posterior(BaseEstimator):  # type: ignore[misc]
    """What both estimators share: scaling, learning, and the part that is held out."""

    fit_: Fit
    prior_: Gaussian | None
    mean_: Any
    scale_: Any

    # Any: by scikit-learn's rules whatever is given is kept as it is, and looked at in `fit`.
    def __init__(
        self,
        network: Any = None,
        hidden_sizes: Any = (64,),
        *,
        prior: Any = None,
        head: Any = None,
        standardise: Any = None,
        held_out: Any = 0.0,
        training: Any = None,
        candidates: Any = "all",
        random_state: Any = None,
    ) -> None:
        self.network: Network | None = network
        self.hidden_sizes: Sequence[int] = hidden_sizes
        self.prior: Prior | _Posterior | None = prior
        self.head: Literal["keep", "new"] | None = head
        self.standardise: bool | None = standardise
        self.held_out: float = held_out
        self.training: Mapping[str, Any] | None = training
        self.candidates: Literal["network", "all"] = candidates
        self.random_state = random_state

    def _learn(
        self, X: Any, targets: Any, sample_weight: Any, together: Any, outputs: int, likelihood: Any, classes: Any
    ) -> Any:
        """Split, scale, build and learn; gives back what was held out, in numbers.

        Distinct rows are split, and repeated after it: no copy of an example that was fitted is among those held out. What
        belongs `together` is on one side.
        """
        counts = _counts(sample_weight, len(X))
        random = check_random_state(self.random_state)
        generator = torch.Generator().manual_seed(int(random.randint(2**31 - 1)))
        groups, few_values = _alike(X, targets, together)
        held, kept = _split(groups, counts, self.held_out, random)
        copied = not few_values and len(np.unique(groups[kept])) < (1 - COPIED) * len(kept)
        self._scale(X[kept])
        # The first weights are drawn from torch's own source: seeded here, and as it was afterwards.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(random.randint(2**31 - 1)))
            fit = learn(
                self.builder()(X.shape[1], outputs),
                (self._tensor(X[kept]), targets[kept]),
                self.prior_,
                likelihood,
                classes=classes,
                head=self.head,
                groups=torch.as_tensor(groups[kept]) if copied or together is not None else None,
                generator=generator,
                progress=False,
                training=dict(self.training or {}),
                candidates=self.candidates,
            )
        card = replace(fit.posterior.card, recipe=json.dumps(self._recipe(classes)))
        self.fit_ = replace(fit, posterior=replace(fit.posterior, card=card))
        rows = np.column_stack((X[held], targets[held].double().flatten()))
        once = held if few_values else held[_first(rows)]
        self.n_held_out_ = len(once)
        self.held_groups_ = groups[once]
        return X[once], targets[once]

    def _source(self) -> Gaussian | None:
        """The prior, with what its card says of the scaling of its data."""
        if isinstance(self.prior, _Posterior):
            check_is_fitted(self.prior)
            return self.prior.fit_.posterior
        if isinstance(self.prior, (str, os.PathLike)):
            return handed_down(self.prior)
        return self.prior

    def builder(self) -> Network:
        """What makes the network from the numbers of inputs and outputs."""
        return self.network or (lambda inputs, outputs: mlp(inputs, outputs, self.hidden_sizes))

    def _scale(self, X: Any) -> None:
        """Inputs of mean 0 and variance 1; a prior knows its inputs as they were scaled where it was learned."""
        prior, known = self.prior_, self._scaling
        if known is not None:
            self.mean_, self.scale_ = (np.array(known[name], dtype=np.float64) for name in ("mean", "scale"))
            if self.mean_.shape != (X.shape[1],) or self.scale_.shape != (X.shape[1],):
                raise BadData(
                    f"the prior was learned from {len(self.mean_)} features, and there are {X.shape[1]} here."
                )
        elif prior is None if self.standardise is None else self.standardise:
            self.mean_, deviation = X.mean(0), X.std(0)
            self.scale_ = np.where(deviation > 0, deviation, 1.0)
            if prior is not None and prior.provenance.count:
                why = "inputs were standardised in another way than the prior's, and cannot be compared with those it has seen"
                self.prior_ = prior.with_provenance(prior.provenance.joined(Provenance.unknown(why)))
        else:
            self.mean_, self.scale_ = np.zeros(X.shape[1]), np.ones(X.shape[1])

    @property
    def _scaling(self) -> dict[str, Any] | None:
        """How the prior's data was scaled, where its file says so and no one asked for another scaling."""
        if self.prior_ is None or not self.prior_.card.recipe or self.standardise is False:
            return None
        found = parse(self.prior_.card.recipe)
        return found if isinstance(found, dict) and found.get("mean") and found.get("scale") else None

    def _recipe(self, classes: Any) -> dict[str, Any]:
        """How data is read for the posterior, as the command line has it."""
        names = getattr(self, "feature_names_in_", [f"x{k}" for k in range(self.n_features_in_)])
        return {
            "task": "regression" if classes is None else "classification",
            "shape": [self.n_features_in_],
            "columns": [{"name": str(name), "categories": []} for name in names],
            "target": None,
            "mean": self.mean_.tolist(),
            "scale": self.scale_.tolist(),
            "missing": "refuse",
            "target_mean": getattr(self, "target_mean_", 0.0),
            "target_scale": getattr(self, "target_scale_", 1.0),
            "classes": list(classes or ()),
            "outputs": len(classes or "1"),
        }

    def _tensor(self, X: Any) -> Tensor:
        return torch.as_tensor((X - self.mean_) / self.scale_, dtype=torch.float32)

    def _predict(self, X: Any) -> Prediction:
        return self.fit_.predict(self._tensor(X), generator=torch.Generator().manual_seed(0))

    def _checked(self, X: Any) -> Any:
        check_is_fitted(self)
        return validate_data(self, X, reset=False, dtype=np.float64)

    def _check_new(self, X: Any, y: Any) -> None:
        """Refuse examples that were fitted: what was learned from says nothing of how often sets hold the truth."""
        rows = self._tensor(X)
        here = example_hashes((rows, torch.zeros(len(X))))
        shared = int(seen(self.fit_.posterior.provenance.hashes, here).sum())
        shared = max(shared if shared > by_chance(here) else 0, near_known(known_of(self.fit_), [rows]))
        if shared and not repeats_by_chance(torch.tensor(X), torch.tensor(y)):
            raise NotHeldOut(
                f"{shared} of these {len(X)} examples were fitted, or are copies of such: sets would promise too much. "
                "Give conformalize(X, y) examples that were not, or set held_out=0.2, say, before fitting."
            )

    def _hold_out(self, scores: Any, groups: Any) -> None:
        self.scores_, self.n_held_out_, self.held_groups_ = scores, len(scores), groups

    def _scores_of(self, coverage: float) -> float:
        if not len(self.scores_):
            raise NotHeldOut(
                "no example was held out, so no coverage can be promised: set held_out=0.2, say, before fitting, or call "
                "conformalize(X, y) with examples that were not fitted."
            )
        return split_threshold(torch.as_tensor(self.scores_), coverage, torch.as_tensor(self.held_groups_))

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the fitted estimator as one file that runs no code when it is opened; see `Fit.save`.

        A network of your own is code and stays outside: `load` asks for it again. Where examples are few, predictions are
        computed from them, and **they are in the file**.

        Args:
            path: the file to write.
            overwrite: whether to replace a file that is there.

        Raises:
            NotWritable: if there is such a file already.
        """
        check_is_fitted(self)
        save_estimator(self, Path(path), overwrite)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, network: Network | None = None) -> Any:
        """Open what `save` wrote. Every byte is checked, and no code in it is run.

        Args:
            path: the file that `save` wrote.
            network: the function that built the network, if it was not the built-in one.

        Returns:
            A fitted estimator that predicts as the saved one did.

        Raises:
            BadPriorFile: under the fitting name, if it is something else, or not as it was written.
        """
        return load_estimator(cls, Path(path), network)

    def unknown(self, X: Any) -> Any:
        """The score of `pt.Prediction.unknown` for each input: high where it is unlike the training data.

        Args:
            X: inputs [n, features].

        Returns:
            An array [n].
        """
        found = self._predict(self._checked(X)).unknown
        assert found is not None
        return found.double().reshape(len(found), -1).sum(1).numpy()


class PosteriorClassifier(ClassifierMixin, _Posterior):  # type: ignore[misc]
    """A Bayesian neural network as a scikit-learn classifier, stacked with plain models of the inputs.

    Args:
        network: from the number of inputs and of classes to an `nn.Module` with logits; None is an MLP of `hidden_sizes`.
        hidden_sizes: of the built-in MLP.
        prior: a `Gaussian`, the path of a saved one (or of a fit), or a fitted estimator; None is an isotropic prior around
            zero. Where it says how its inputs were scaled, as those of estimators and tables do, they are scaled alike.
        head: "keep" hands the prior's head down, "new" starts one; None keeps it where the names of the classes are the prior's.
        standardise: whether to scale inputs to mean 0 and variance 1; None does unless there is a prior. False leaves them as
            they are, whatever the prior says.
        held_out: the share of examples set aside for `predict_set`; 0 learns from all of them.
        training: options of `pt.train` (lr, epochs, …); with any, only the network that they train predicts.
        candidates: "all" stacks models of the inputs (linear, a Gaussian process, trees) with the network by what they say of
            left-out examples; "network" is the network alone.
        random_state: a seed or a `RandomState`, for the split, the first weights and training.

    Attributes:
        classes_: the labels, in the order of the columns of `predict_proba`.
        fit_: the `Fit` of `pt.learn`; `fit_.posterior.save("x.safetensors")` hands it down.
        n_held_out_: how many examples were set aside.

    Example:
        >>> model = pt.PosteriorClassifier(held_out=0.2, random_state=0).fit(X, y)
        >>> model.predict_proba(X_new), model.predict_set(X_new, coverage=0.9)
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> PosteriorClassifier:
        """Learn a posterior from examples.

        Args:
            X: inputs [n, features].
            y: labels [n], numbers or strings.
            sample_weight: how often each example was seen, whole numbers; None is once each.
            groups: what belongs together (rows of a person, say), by number or name: held out and left out together. Sets
                then promise their coverage for a new group.

        Returns:
            The estimator itself.

        Raises:
            BadData: if weights are not whole numbers.
        """
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        if sample_weight is not None:
            sample_weight = _check_sample_weight(sample_weight, X)
        self.classes_, index = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError("a classifier needs examples of at least two classes, and all are of one class")
        self.prior_ = self._source()
        index = self._as_on_card(index)
        names = [str(name) for name in self.classes_]
        targets = torch.as_tensor(index, dtype=torch.int64)
        held = self._learn(X, targets, sample_weight, groups, len(names), Categorical(), names)
        self.scores_ = self._scores(held[0], held[1].numpy()) if len(held[0]) else np.zeros(0)
        return self

    def _as_on_card(self, index: Any) -> Any:
        """The labels' numbers. A head that is kept has its outputs in the order of the card's names, whichever are here."""
        names = () if self.prior_ is None or self.head != "keep" else self.prior_.card.classes
        if not names or not {str(name) for name in self.classes_} <= set(names):
            return index
        place = np.array([names.index(str(name)) for name in self.classes_])
        self.classes_ = np.array(names).astype(self.classes_.dtype)
        return place[index]

    def conformalize(self, X: Any, y: Any, groups: Any = None) -> PosteriorClassifier:
        """Take other examples, which were not fitted, for `predict_set`.

        Args:
            X: inputs [n, features].
            y: their labels.
            groups: what belongs together; each group counts once.

        Returns:
            The estimator itself.

        Raises:
            NotHeldOut: if they were fitted, or are copies of examples that were.
        """
        X = self._checked(X)
        place = {name: k for k, name in enumerate(self.classes_.tolist())}
        index = np.array([place.get(name, -1) for name in np.asarray(y).tolist()])
        if (index < 0).any():
            raise BadData(f"there are labels that were not fitted: the classes are {list(self.classes_)}.")
        self._check_new(X, index)
        self._hold_out(self._scores(X, index), _alike(X, index, groups)[0])
        return self

    def _scores(self, X: Any, index: Any) -> Any:
        """One minus the probability of the true class, of each example."""
        return 1 - self._probabilities(X)[np.arange(len(index)), index]

    def _probabilities(self, X: Any) -> Any:
        probabilities = self._predict(X).probs.double().numpy()
        return probabilities / probabilities.sum(1, keepdims=True)

    def predict_proba(self, X: Any) -> Any:
        """Probabilities of the classes, averaged over the posterior.

        Args:
            X: inputs [n, features].

        Returns:
            An array [n, classes].
        """
        return self._probabilities(self._checked(X))

    def predict(self, X: Any) -> Any:
        """The most probable label of each input.

        Args:
            X: inputs [n, features].

        Returns:
            An array [n].
        """
        chosen = self.predict_proba(X).argmax(1)
        return self.classes_[chosen]

    def predict_set(self, X: Any, coverage: float = 0.9) -> Any:
        """A set of labels for each input that holds the true one with probability `coverage`, whatever the network is worth.

        Split-conformal prediction: it needs examples that were held out, and new ones that come from the same source. The
        promise is an average over draws of both, not one for each class or input.

        Args:
            X: inputs [n, features].
            coverage: the probability that is promised.

        Returns:
            A boolean array [n, classes]: which are in the set. The most probable one always is.

        Raises:
            NotHeldOut: if no example was held out.
        """
        X = self._checked(X)
        return class_sets(torch.as_tensor(self._probabilities(X)), self._scores_of(coverage)).numpy()


class PosteriorRegressor(RegressorMixin, _Posterior):  # type: ignore[misc]
    """A Bayesian neural network as a scikit-learn regressor, stacked with plain models of the inputs; noise is learned.

    Args:
        network: from the number of inputs and of outputs (1) to an `nn.Module`; None is an MLP of `hidden_sizes`.
        hidden_sizes: of the built-in MLP.
        prior: a `Gaussian`, the path of a saved one (or of a fit), or a fitted estimator; None is an isotropic prior around
            zero. Where it says how inputs and targets were scaled, as those of estimators and tables do, they are alike.
        head: "keep" hands the prior's head down, "new" starts one.
        standardise: whether to scale inputs and targets to mean 0 and variance 1; None does unless there is a prior. False leaves
            them as they are, whatever the prior says.
        held_out: the share of examples set aside for `predict_set`; 0 learns from all of them.
        training: options of `pt.train` (lr, epochs, …); with any, only the network that they train predicts.
        candidates: "all" stacks models of the inputs (linear, a Gaussian process, trees) with the network by what they say of
            left-out examples; "network" is the network alone.
        random_state: a seed or a `RandomState`, for the split, the first weights and training.

    Attributes:
        fit_: the `Fit` of `pt.learn`; `fit_.posterior.save("x.safetensors")` hands it down.
        n_held_out_: how many examples were set aside.

    Example:
        >>> model = pt.PosteriorRegressor(held_out=0.2, random_state=0).fit(X, y)
        >>> mean, deviation = model.predict(X_new, return_std=True)
        >>> model.predict_set(X_new, coverage=0.9)
    """

    target_mean_: float
    target_scale_: float

    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> PosteriorRegressor:
        """Learn a posterior, and the noise, from examples.

        Args:
            X: inputs [n, features].
            y: targets [n].
            sample_weight: how often each example was seen, whole numbers; None is once each.
            groups: what belongs together (rows of a person, say), by number or name: held out and left out together. Sets
                then promise their coverage for a new group.

        Returns:
            The estimator itself.

        Raises:
            BadData: if weights are not whole numbers.
        """
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True, multi_output=True)
        y = column_or_1d(y, dtype=np.float64, warn=True)
        if sample_weight is not None:
            sample_weight = _check_sample_weight(sample_weight, X)
        self.prior_ = self._source()
        known = self._scaling
        if known is not None:
            self.target_mean_, self.target_scale_ = float(known["target_mean"]), float(known["target_scale"])
        elif self.prior_ is None if self.standardise is None else self.standardise:
            self.target_mean_, self.target_scale_ = float(y.mean()), float(y.std()) or 1.0
        else:
            self.target_mean_, self.target_scale_ = 0.0, 1.0
        targets = torch.as_tensor((y - self.target_mean_) / self.target_scale_, dtype=torch.float32)[:, None]
        held = self._learn(X, targets, sample_weight, groups, 1, GaussianNoise(), None)
        self.scores_ = np.zeros(0)
        if len(held[0]):
            scaled = held[1][:, 0].double().numpy() * self.target_scale_ + self.target_mean_
            self.scores_ = self._scores(held[0], scaled)
        return self

    def conformalize(self, X: Any, y: Any, groups: Any = None) -> PosteriorRegressor:
        """Take other examples, which were not fitted, for `predict_set`.

        Args:
            X: inputs [n, features].
            y: their targets.
            groups: what belongs together; each group counts once.

        Returns:
            The estimator itself.

        Raises:
            NotHeldOut: if they were fitted, or are copies of examples that were.
        """
        X, y = self._checked(X), column_or_1d(y, dtype=np.float64)
        self._check_new(X, y)
        self._hold_out(self._scores(X, y), _alike(X, y, groups)[0])
        return self

    def _scores(self, X: Any, y: Any) -> Any:
        """How many predictive standard deviations each target is away from its mean."""
        mean, deviation = self._moments(X)
        return np.abs(y - mean) / deviation

    def _moments(self, X: Any) -> tuple[Any, Any]:
        found = self._predict(X)
        mean = found.mean.double().reshape(len(X)).numpy() * self.target_scale_ + self.target_mean_
        return mean, found.variance.double().reshape(len(X)).sqrt().numpy() * self.target_scale_

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """The expected target of each input.

        Args:
            X: inputs [n, features].
            return_std: whether to give the predictive standard deviation too, noise included.

        Returns:
            An array [n], or a pair of them.
        """
        mean, deviation = self._moments(self._checked(X))
        return (mean, deviation) if return_std else mean

    def predict_set(self, X: Any, coverage: float = 0.9) -> Any:
        """An interval for each input that holds the true target with probability `coverage`, whatever the network is worth.

        Split-conformal prediction on deviations in units of the predictive standard deviation, so intervals are wider where the
        posterior is less sure. It needs examples that were held out, and new ones that come from the same source.

        Args:
            X: inputs [n, features].
            coverage: the probability that is promised.

        Returns:
            An array [n, 2] of lower and upper ends.

        Raises:
            NotHeldOut: if no example was held out.
        """
        X = self._checked(X)
        mean, deviation = map(torch.as_tensor, self._moments(X))
        return split_intervals(mean, deviation, self._scores_of(coverage)).numpy()


def _counts(weight: Any, n: int) -> Any:
    """How often each example was seen. A likelihood has no place for fractions of an example."""
    if weight is None:
        return np.ones(n, dtype=int)
    counts = np.rint(weight).astype(int)
    if not np.allclose(weight, counts) or (counts < 0).any():
        raise BadData("sample_weight is how often an example was seen: give whole numbers, none below 0.")
    if not counts.any():
        raise BadData("every sample_weight is 0: there is no example to learn from.")
    return counts


def _numbered(groups: Any, n: int) -> Any:
    """Groups as whole numbers, whatever they are called."""
    found = np.unique(np.asarray(groups).astype(str), return_inverse=True)[1].reshape(-1)
    if len(found) != n:
        raise BadData(f"groups has {len(found)} entries and there are {n} examples: one for each is needed.")
    return found


def _first(rows: Any) -> Any:
    """The place of each distinct row, in order."""
    return np.sort(np.unique(np.asarray(rows, dtype=np.float32), axis=0, return_index=True)[1])


def _alike(X: Any, targets: Any, together: Any) -> tuple[Any, bool]:
    """A number for each row, the same for copies (exact or near) and what belongs `together`; and whether it has few values."""
    targets = torch.as_tensor(targets)
    # In one column alone, copies look as few values do: there the targets tell. Copied: rows may be read-only memory maps.
    both = np.column_stack((X, targets.numpy().reshape(len(X), -1)))
    few_values = repeats_by_chance(torch.tensor(X if X.shape[1] > 1 else both), targets.flatten())
    groups = torch.arange(len(X))
    if not few_values:
        near = families([torch.tensor(X)], targets.flatten())
        groups = joined(torch.as_tensor(_distinct(X)), groups if near is None else near)
    if together is not None:
        groups = joined(groups, torch.as_tensor(_numbered(together, len(X))))
    return groups.numpy(), few_values


def _distinct(X: Any) -> Any:
    """A number for each row, the same for equal ones, in the order of their first place."""
    _, first, groups = np.unique(np.asarray(X, dtype=np.float32), axis=0, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[groups.reshape(-1)]


def _split(groups: Any, counts: Any, share: float, random: Any) -> tuple[Any, Any]:
    """(held out, kept): whole groups in a random order; those that are kept as often as they count."""
    if not 0 <= share < 1:
        raise ValueError(f"held_out is a share of the examples, at least 0 and below 1, not {share}")
    there = np.unique(groups[counts > 0])
    held = np.zeros(groups.max() + 1, dtype=bool)
    if share:
        held[there[random.permutation(len(there))[: min(round(len(there) * share), len(there) - 1)]]] = True
    index = np.arange(len(groups))
    return index[held[groups] & (counts > 0)], np.repeat(index, np.where(held[groups], 0, counts))
