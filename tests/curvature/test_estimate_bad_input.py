"""Bad input gets a named error that says what to do, and the model stays as it was."""

from __future__ import annotations

import pytest
import torch
from curvature_cases import case, data, network
from test_model_untouched import assert_untouched, snapshot
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import posterity.blocks.embedding
from posterity.algebra import DiagonalMatrix
from posterity.curvature import (
    EKFAC,
    KFAC,
    KFOC,
    Bernoulli,
    Categorical,
    Dense,
    Diagonal,
    ExactLabels,
    GaussianNoise,
    SampledLabels,
    estimate,
)
from posterity.errors import (
    BadData,
    BadTargets,
    BatchLost,
    NoBlocks,
    NoData,
    NotFinite,
    PosterityError,
    TooLarge,
    UnreachedBlock,
    UnsupportedLayer,
)

X, Y = data("mlp")


class Raw(nn.Module):
    def __init__(self, returned) -> None:
        super().__init__()
        self.fc, self.returned = nn.Linear(4, 3).double(), returned

    def forward(self, x: Tensor):
        return self.returned(self.fc(x))


class Spare(nn.Module):
    """A layer that the forward pass never calls."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.spare = nn.Linear(4, 3).double(), nn.Linear(4, 3).double()

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(x)


class Own(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4).double())
        self.fc = nn.Linear(4, 3).double()

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.scale * x)


def nan_in(batch: int) -> Tensor:
    x = X.clone()
    x[2 * batch] = torch.nan
    return x


DATA = [
    ((X[:0], Y[:0]), NoData, "empty"),
    ([], NoData, "list given as data is empty"),
    (iter(()), NoData, "no example"),
    (TensorDataset(X[:0], Y[:0]), NoData, "TensorDataset given as data is empty"),
    (DataLoader(TensorDataset(X, Y), batch_size=100, drop_last=True), NoData, "empty"),
    ([(X[:0], Y[:0])], NoData, "no example"),
    ((X, Y[:-1]), BadData, "7 inputs and 6 targets"),
    ([(X, Y[:-1])], PosterityError, "7"),
    ([(X[:6], Y[:3])], BadTargets, "shape"),
    (X, BadData, "batch 0 is a Tensor"),
    ([(X, Y, Y)], BadData, "pair"),
    ([(X, Y), "more"], BadData, "batch 1 is a str"),
    ([{"input": X}], BadData, "targets must be under"),
    ([{"input": X[0], "labels": 1}], BadData, "not a batch"),
    ((X, Y.clamp_min(2) + 1), BadTargets, "from 3 to 3 and the network has 3 outputs"),
    ((X, Y - 1), BadTargets, "labels reach from -1"),
    ((X, torch.full_like(Y, -100)), BadTargets, "-100"),
    ((X, Y.double()), BadTargets, r"\.long\(\)"),
    ((X, Y > 0), BadTargets, r"\.long\(\)"),
    ((X, Y[:, None]), BadTargets, r"\(2, 1\)"),
    ((X, torch.nn.functional.one_hot(Y, 3)), BadTargets, "without the class dimension"),
    ((nan_in(0), Y), NotFinite, "NaN numbers in 1 of 7 examples, the first in example 0"),
    ((nan_in(3), Y), NotFinite, "the first in example 6"),
    ([(X[:0], Y[:0]), (nan_in(0), Y)], NotFinite, "batch 1"),
]


@pytest.mark.parametrize(("given", "error", "says"), DATA, ids=range(len(DATA)))
@pytest.mark.parametrize("estimator", [KFAC(), KFOC()], ids=["KFAC", "KFOC"])
def test_bad_data_gets_a_named_error_that_says_what_to_do(given, error, says, estimator):
    model = network("mlp")
    before = snapshot(model)
    with pytest.raises(error, match=says) as caught:
        estimate(model, given, estimator, batch_size=2, progress=False)
    assert isinstance(caught.value, PosterityError)
    assert_untouched(before, model)


@pytest.mark.parametrize(
    ("likelihood", "outputs", "targets", "says"),
    [
        (Categorical(), lambda f: f[:, 0], Y, "class dimension"),
        (Categorical(), lambda f: f[:, None], Y, "do not fit"),
        (Categorical(), lambda f: f[:3], Y, "do not fit"),
        (Categorical(), lambda f: f[:, None, :].expand(-1, 2, -1), Y[:, None].expand(-1, 3), None),
        (GaussianNoise(), lambda f: f, Y.double(), "GaussianNoise needs outputs and targets of one shape"),
        (GaussianNoise(), lambda f: f[:, :1], torch.zeros(7, 7), "broadcasting"),
        (GaussianNoise(), lambda f: f, torch.zeros(7, 2), r"\(7, 2\)"),
        (Bernoulli(), lambda f: f, torch.zeros(7), "one shape"),
        (Bernoulli(), lambda f: f, torch.full((7, 3), 2.0), "between 0 and 1"),
        (Bernoulli(), lambda f: f, torch.full((7, 3), -0.5), "between 0 and 1"),
    ],
)
def test_outputs_and_targets_that_do_not_fit_the_likelihood_are_refused(likelihood, outputs, targets, says):
    if says is None:  # (n, 2, 3) with (n, 3): the two are read as classes, which is what torch does
        assert likelihood.check(outputs(torch.zeros(7, 3)), targets.clamp_max(1))[0].shape == (7, 3, 2)
        return
    model = Raw(outputs)
    before = snapshot(model)
    with pytest.raises(BadTargets, match=says):
        estimate(model, (X, targets), Diagonal(), likelihood, progress=False)
    assert_untouched(before, model)


@pytest.mark.parametrize(
    ("model", "estimator", "options", "error", "says"),
    [
        (Raw(lambda f: (f, f)), KFAC(), {}, BadData, "tuple"),
        (Raw(lambda f: f), KFAC(), {"blocks": "nothing*"}, NoBlocks, "nothing"),
        (Raw(lambda f: f), KFAC(), {"blocks": nn.Conv2d}, NoBlocks, "fc"),
        (Raw(lambda f: f), KFAC(), {"blocks": []}, NoBlocks, "fc"),
        (Raw(lambda f: f).requires_grad_(False), KFAC(), {}, NoBlocks, "no block"),
        (Spare(), KFAC(), {}, UnreachedBlock, "spare"),
        (Spare(), KFOC(), {}, UnreachedBlock, "blocks="),
        (Own(), KFAC(), {}, UnsupportedLayer, "scale|Own"),
        (Raw(lambda f: f), Dense(limit=14), {}, TooLarge, r'"fc" has 15 parameters'),
        (Raw(lambda f: f * torch.inf), KFAC(), {}, NotFinite, "batch 0"),
        (Raw(lambda f: f.reshape(-1)), KFAC(), {}, BadTargets, "class dimension"),
    ],
)
def test_bad_networks_and_selections_are_refused(model, estimator, options, error, says):
    before = snapshot(model)
    with pytest.raises(error, match=says) as caught:
        estimate(model, (X, Y), estimator, progress=False, **options)
    assert isinstance(caught.value, PosterityError)
    assert_untouched(before, model)


def test_a_layer_left_out_by_name_is_no_obstacle():
    result = estimate(Spare(), (X, Y), KFAC(), blocks="fc", progress=False)
    assert list(result.blocks) == ["fc"]
    assert estimate(Own(), (X, Y), KFAC(), blocks=nn.Linear, progress=False).count == 7


def test_a_block_whose_output_is_not_used_has_no_curvature():
    class Unused(Spare):
        def forward(self, x: Tensor) -> Tensor:
            self.spare(x)
            return self.fc(x)

    for estimator in (KFAC(), KFOC(), EKFAC(), Diagonal(), Dense()):
        result = estimate(Unused(), (X, Y), estimator, batch_size=3, progress=False)
        assert not result["spare"].dense().any()
        assert result["fc"].dense().any()
        with pytest.raises(UnreachedBlock, match="spare"):
            estimate(Unused(), (X, Y), estimator, blocks="spare", progress=False)


@pytest.mark.parametrize("estimator", [KFAC(), KFAC(sharing="reduce"), KFOC(), EKFAC()], ids=str)
def test_an_embedding_over_the_limit_is_kept_diagonal(estimator, monkeypatch):
    monkeypatch.setattr(posterity.blocks.embedding, "VOCABULARY_LIMIT", 5)
    model = network("tagger")
    (name,) = [n for n, m in model.named_modules() if isinstance(m, nn.Embedding)]
    options = {"progress": False, "batch_size": 3}
    found = estimate(model, data("tagger"), estimator, generator=torch.Generator().manual_seed(0), **options)
    exact = estimate(model, data("tagger"), Dense(), generator=torch.Generator().manual_seed(0), **options)
    assert isinstance(found[name], DiagonalMatrix)
    torch.testing.assert_close(found[name].values.flatten(), exact[name].dense().diagonal(), rtol=1e-5, atol=1e-9)


def test_exact_labels_for_every_token_are_refused_by_name():
    for name in ("tagger", "pixels"):
        with pytest.raises(BadTargets, match=r"SampledLabels\(n\)"):
            estimate(case(name).model, data(name), KFAC(ExactLabels()), progress=False)


def test_a_batch_that_loses_its_examples_is_refused():
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc, self.mix = nn.Linear(4, 3).double(), nn.Linear(4, 4).double()

        def forward(self, x: Tensor) -> Tensor:
            return self.fc(x + self.mix(x[:2]).mean(0))

    with pytest.raises(BatchLost, match="mix"):
        estimate(Mixed(), (X, Y), KFAC(), progress=False)


@pytest.mark.parametrize("n", [0, -1])
def test_a_number_of_sampled_labels_that_is_none_is_refused(n):
    with pytest.raises(ValueError, match="at least 1"):
        SampledLabels(n)


def test_too_little_memory_for_the_factors_is_told_before_they_are_made(monkeypatch):
    from posterity.errors import TooLittleMemory

    monkeypatch.setattr("posterity.memory.available_memory", lambda: 1000)
    data = torch.randn(2, 5000), torch.tensor([0, 1])
    with pytest.raises(TooLittleMemory, match=r"KFAC needs .* Diagonal\(\)"):
        posterity.estimate(nn.Linear(5000, 2), data, posterity.KFAC(), progress=False)


def test_factors_of_a_few_megabytes_are_made_without_asking_for_memory(monkeypatch):
    monkeypatch.setattr("posterity.memory.available_memory", lambda: 1000)
    data = torch.randn(2, 30), torch.tensor([0, 1])
    assert posterity.estimate(nn.Linear(30, 2), data, posterity.KFAC(), progress=False).count == 2
