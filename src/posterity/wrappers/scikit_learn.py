"""Estimators for scikit-learn: `fit` learns a posterior, `predict_proba` averages over it, `predict_set` promises a coverage."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from posterity.curvature import Categorical, GaussianNoise
from posterity.errors import BadData, NotHeldOut, NotInstalled
from posterity.gaussian import Gaussian, load
from posterity.predictive import Prediction
from posterity.workflow import Fit, learn
from posterity.wrappers.conformal import class_scores, class_sets, interval_scores, intervals, threshold
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
        random_state: Any = None,
    ) -> None:
        self.network: Network | None = network
        self.hidden_sizes: Sequence[int] = hidden_sizes
        self.prior: Prior | _Posterior | None = prior
        self.head: Literal["keep", "new"] | None = head
        self.standardise: bool | None = standardise
        self.held_out: float = held_out
        self.training: Mapping[str, Any] | None = training
        self.random_state = random_state

    def _learn(self, X: Any, targets: Any, sample_weight: Any, outputs: int, likelihood: Any, classes: Any) -> Any:
        """Split, scale, build and learn; gives back what was held out, in numbers."""
        X, targets = _counted(X, targets, sample_weight)
        random = check_random_state(self.random_state)
        generator = torch.Generator().manual_seed(int(random.randint(2**31 - 1)))
        held, kept = _split(len(X), self.held_out, random)
        source = self.prior if isinstance(self.prior, _Posterior) else None
        if source is not None:
            check_is_fitted(source)
        prior = source.fit_.posterior if source is not None else self.prior
        if isinstance(prior, (str, os.PathLike)):
            prior = load(prior)
        self._scale(X[kept], source, prior is not None)
        # The first weights are drawn from torch's own source: seeded here, and as it was afterwards.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(random.randint(2**31 - 1)))
            build = self.builder()
            self.fit_ = learn(
                build(X.shape[1], outputs),
                (self._tensor(X[kept]), targets[kept]),
                prior,
                likelihood,
                classes=classes,
                head=self.head,
                generator=generator,
                progress=False,
                training=dict(self.training or {}),
            )
        self.n_held_out_ = len(held)
        # What `save` needs: the exact posterior of few examples is computed from them again.
        self._given = prior
        self._examples = None if self.fit_.function is None else (self._tensor(X[kept]), targets[kept])
        return X[held], targets[held]

    def builder(self) -> Network:
        """What makes the network from the numbers of inputs and outputs."""
        return self.network or (lambda inputs, outputs: mlp(inputs, outputs, self.hidden_sizes))

    def _scale(self, X: Any, source: _Posterior | None, has_prior: bool) -> None:
        """Inputs of mean 0 and variance 1; a prior knows its inputs as they were scaled where it was learned."""
        if source is not None:
            self.mean_, self.scale_ = source.mean_, source.scale_
        elif not has_prior if self.standardise is None else self.standardise:
            self.mean_, deviation = X.mean(0), X.std(0)
            self.scale_ = np.where(deviation > 0, deviation, 1.0)
        else:
            self.mean_, self.scale_ = np.zeros(X.shape[1]), np.ones(X.shape[1])

    def _tensor(self, X: Any) -> Tensor:
        return torch.as_tensor((X - self.mean_) / self.scale_, dtype=torch.float32)

    def _predict(self, X: Any) -> Prediction:
        return self.fit_.predict(self._tensor(X), generator=torch.Generator().manual_seed(0))

    def _checked(self, X: Any) -> Any:
        check_is_fitted(self)
        return validate_data(self, X, reset=False, dtype=np.float64)

    def _scores_of(self, coverage: float) -> float:
        if not len(self.scores_):
            raise NotHeldOut(
                "no example was held out, so no coverage can be promised: set held_out=0.2, say, before fitting, or call "
                "conformalize(X, y) with examples that were not fitted."
            )
        return threshold(self.scores_, coverage)

    def save(self, folder: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the fitted estimator as a folder of files that run no code when they are opened.

        A network of your own is code and stays outside: `load` asks for it again. Where examples are few, predictions are
        computed from them, and **they are in the folder**.

        Args:
            folder: the folder to make.
            overwrite: whether to replace a folder that was saved before.

        Raises:
            BadFitFolder: if the folder is there already.
        """
        check_is_fitted(self)
        save_estimator(self, Path(folder), overwrite)

    @classmethod
    def load(cls, folder: str | os.PathLike[str], *, network: Network | None = None) -> Any:
        """Open what `save` wrote. Every file is checked, and no code in it is run.

        Args:
            folder: that `save` wrote.
            network: the function that built the network, if it was not the built-in one.

        Returns:
            A fitted estimator that predicts as the saved one did.

        Raises:
            BadFitFolder: if the folder holds something else, or is not as it was written.
        """
        return load_estimator(cls, Path(folder), network)

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
    """A Bayesian neural network as a scikit-learn classifier.

    Args:
        network: from the number of inputs and of classes to an `nn.Module` with logits; None is an MLP of `hidden_sizes`.
        hidden_sizes: of the built-in MLP.
        prior: a `Gaussian`, the path of a saved one, or a fitted estimator, whose scaling of inputs is then kept; None is an
            isotropic prior around zero.
        head: "keep" hands the prior's head down, "new" starts one; None keeps it where the names of the classes are the prior's.
        standardise: whether to scale inputs to mean 0 and variance 1; None does unless there is a prior from a file.
        held_out: the share of examples set aside for `predict_set`; 0 learns from all of them.
        training: options of `pt.train` (lr, epochs, …).
        random_state: a seed or a `RandomState`, for the split, the first weights and training.

    Attributes:
        classes_: the labels, in the order of the columns of `predict_proba`.
        fit_: the `Fit` of `pt.learn`; `fit_.posterior.save("x.safetensors")` hands it down.
        n_held_out_: how many examples were set aside.

    Example:
        >>> model = pt.PosteriorClassifier(held_out=0.2, random_state=0).fit(X, y)
        >>> model.predict_proba(X_new), model.predict_set(X_new, coverage=0.9)
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> PosteriorClassifier:
        """Learn a posterior from examples.

        Args:
            X: inputs [n, features].
            y: labels [n], numbers or strings.
            sample_weight: how often each example was seen, whole numbers; None is once each.

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
        names = [str(name) for name in self.classes_]
        targets = torch.as_tensor(index, dtype=torch.int64)
        held = self._learn(X, targets, sample_weight, len(names), Categorical(), names)
        self.scores_ = class_scores(self._probabilities(held[0]), held[1].numpy()) if len(held[0]) else np.zeros(0)
        return self

    def conformalize(self, X: Any, y: Any) -> PosteriorClassifier:
        """Take other examples, which were not fitted, for `predict_set`.

        Args:
            X: inputs [n, features].
            y: their labels.

        Returns:
            The estimator itself.
        """
        X = self._checked(X)
        index = np.searchsorted(self.classes_, y).clip(max=len(self.classes_) - 1)
        if not np.array_equal(self.classes_[index], np.asarray(y)):
            raise BadData(f"there are labels that were not fitted: the classes are {list(self.classes_)}.")
        self.scores_, self.n_held_out_ = class_scores(self._probabilities(X), index), len(X)
        return self

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
        return class_sets(self._probabilities(X), self._scores_of(coverage))


class PosteriorRegressor(RegressorMixin, _Posterior):  # type: ignore[misc]
    """A Bayesian neural network as a scikit-learn regressor; its noise is learned.

    Args:
        network: from the number of inputs and of outputs (1) to an `nn.Module`; None is an MLP of `hidden_sizes`.
        hidden_sizes: of the built-in MLP.
        prior: a `Gaussian`, the path of a saved one, or a fitted estimator, whose scaling of inputs and targets is then kept;
            None is an isotropic prior around zero.
        head: "keep" hands the prior's head down, "new" starts one.
        standardise: whether to scale inputs and targets to mean 0 and variance 1; None does unless there is a prior from a file.
        held_out: the share of examples set aside for `predict_set`; 0 learns from all of them.
        training: options of `pt.train` (lr, epochs, …).
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

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> PosteriorRegressor:
        """Learn a posterior, and the noise, from examples.

        Args:
            X: inputs [n, features].
            y: targets [n].
            sample_weight: how often each example was seen, whole numbers; None is once each.

        Returns:
            The estimator itself.

        Raises:
            BadData: if weights are not whole numbers.
        """
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True, multi_output=True)
        y = column_or_1d(y, dtype=np.float64, warn=True)
        if sample_weight is not None:
            sample_weight = _check_sample_weight(sample_weight, X)
        if isinstance(self.prior, PosteriorRegressor):
            self.target_mean_, self.target_scale_ = self.prior.target_mean_, self.prior.target_scale_
        elif self.prior is None if self.standardise is None else self.standardise:
            self.target_mean_, self.target_scale_ = float(y.mean()), float(y.std()) or 1.0
        else:
            self.target_mean_, self.target_scale_ = 0.0, 1.0
        targets = torch.as_tensor((y - self.target_mean_) / self.target_scale_, dtype=torch.float32)[:, None]
        held = self._learn(X, targets, sample_weight, 1, GaussianNoise(), None)
        self.scores_ = np.zeros(0)
        if len(held[0]):
            scaled = held[1][:, 0].double().numpy() * self.target_scale_ + self.target_mean_
            self.scores_ = interval_scores(*self._moments(held[0]), scaled)
        return self

    def conformalize(self, X: Any, y: Any) -> PosteriorRegressor:
        """Take other examples, which were not fitted, for `predict_set`.

        Args:
            X: inputs [n, features].
            y: their targets.

        Returns:
            The estimator itself.
        """
        X = self._checked(X)
        self.scores_, self.n_held_out_ = interval_scores(*self._moments(X), column_or_1d(y, dtype=np.float64)), len(X)
        return self

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
        return intervals(*self._moments(X), self._scores_of(coverage))


def _counted(X: Any, targets: Tensor, weight: Any) -> tuple[Any, Tensor]:
    """Every example as often as its weight says. A likelihood has no place for fractions of an example."""
    if weight is None:
        return X, targets
    counts = np.rint(weight).astype(int)
    if not np.allclose(weight, counts) or (counts < 0).any():
        raise BadData("sample_weight is how often an example was seen: give whole numbers, none below 0.")
    if not counts.any():
        raise BadData("every sample_weight is 0: there is no example to learn from.")
    index = np.repeat(np.arange(len(X)), counts)
    return X[index], targets[index]


def _split(n: int, share: float, random: Any) -> tuple[Any, Any]:
    """(held out, kept), by a random order."""
    if not 0 <= share < 1:
        raise ValueError(f"held_out is a share of the examples, at least 0 and below 1, not {share}")
    if not share:
        return np.zeros(0, dtype=int), np.arange(n)
    order = random.permutation(n)
    count = min(round(n * share), n - 1)
    return np.sort(order[:count]), np.sort(order[count:])
