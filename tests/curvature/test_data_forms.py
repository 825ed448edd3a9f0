"""Whatever a user has for data gives the same curvature."""

from __future__ import annotations

from collections import UserDict
from dataclasses import dataclass

import pytest
import torch
from curvature_cases import EXAMPLES, case, data
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from posterity.curvature import (
    EKFAC,
    KFAC,
    Bernoulli,
    Dense,
    Diagonal,
    EmpiricalLabels,
    ExactLabels,
    GaussianNoise,
    estimate,
)
from posterity.data.batches import Workers, batch_count, batches
from posterity.errors import BadData, NoData

X, Y = data("mlp")
MODEL = case("mlp").model


class Stream(IterableDataset):
    """Examples without a length."""

    def __iter__(self):
        return iter(zip(X, Y, strict=True))


class Pairs(Dataset):
    def __len__(self) -> int:
        return len(X)

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        return X[i], int(Y[i])


class Again:
    """Something that can be gone through more than once and is neither a list nor a loader."""

    def __iter__(self):
        return iter([(X[:3], Y[:3]), (X[3:], Y[3:])])


FORMS = {
    "a tuple of tensors": lambda: (X, Y),
    "a list of tensors": lambda: [X, Y],
    "a tensor dataset": lambda: TensorDataset(X, Y),
    "a dataset": Pairs,
    "an iterable dataset": Stream,
    "a loader": lambda: DataLoader(TensorDataset(X, Y), batch_size=3),
    "a shuffling loader": lambda: DataLoader(TensorDataset(X, Y), batch_size=3, shuffle=True),
    "a loader of an iterable dataset": lambda: DataLoader(Stream(), batch_size=3),
    "a list of batches": lambda: [(X[:3], Y[:3]), (X[3:], Y[3:])],
    "a list of lists": lambda: [[X[:3], Y[:3]], [X[3:], Y[3:]]],
    "a tuple of three batches": lambda: ((X[:3], Y[:3]), (X[3:5], Y[3:5]), (X[5:], Y[5:])),
    "batches with an empty one": lambda: [(X[:3], Y[:3]), (X[:0], Y[:0]), (X[3:], Y[3:])],
    "mappings": lambda: [{"input": X[:3], "labels": Y[:3]}, {"input": X[3:], "labels": Y[3:]}],
    "mappings with targets under y": lambda: [{"input": X, "y": Y}],
    "pairs with a mapping of inputs": lambda: [({"input": X}, Y)],
    "labels in a list": lambda: [(X, Y.tolist())],
    "an iterable": Again,
}


@pytest.mark.parametrize("kind", [Dense, KFAC, EKFAC])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_data_gives_the_same(form, kind):
    expected = estimate(MODEL, (X, Y), kind(ExactLabels()), progress=False)
    result = estimate(MODEL, FORMS[form](), kind(ExactLabels()), batch_size=3, progress=False)
    assert result.count == EXAMPLES
    assert result.nll == pytest.approx(expected.nll, rel=1e-12)
    for block, matrix in expected.blocks.items():
        torch.testing.assert_close(result[block].dense(), matrix.dense(), rtol=1e-9, atol=1e-11)


def test_a_generator_of_batches_serves_one_pass():
    expected = estimate(MODEL, (X, Y), KFAC(ExactLabels()), progress=False)
    result = estimate(MODEL, ((X[i::2], Y[i::2]) for i in range(2)), KFAC(ExactLabels()), progress=False)
    torch.testing.assert_close(result["0"].dense(), expected["0"].dense())


def test_data_that_cannot_be_read_twice_is_refused_by_name_where_two_passes_are_needed():
    with pytest.raises(BadData, match="twice"):
        estimate(MODEL, ((X[i::2], Y[i::2]) for i in range(2)), EKFAC(ExactLabels()), progress=False)


def test_an_empty_generator_is_no_data():
    with pytest.raises(NoData):
        estimate(MODEL, iter(()), KFAC(), progress=False)


# --- networks that return records --------------------------------------------------------------------


@dataclass
class Output:
    logits: Tensor
    hidden: Tensor


class Classifier(nn.Module):
    """Called as transformers' models are, and returns what they return."""

    def __init__(self, per_token: bool) -> None:
        super().__init__()
        self.words, self.mix, self.head = nn.Embedding(6, 4), nn.Linear(4, 4), nn.Linear(4, 3)
        self.per_token = per_token

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None, labels: Tensor | None = None) -> Output:
        assert labels is None
        assert attention_mask is not None
        h = torch.tanh(self.mix(self.words(input_ids))) * attention_mask[..., None]
        pooled = h if self.per_token else h.sum(1) / attention_mask.sum(1, keepdim=True)
        return Output(self.head(pooled), h)


def tokens(seed: int, length: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    mask = torch.ones(4, length, dtype=torch.long)
    mask[:2, -1] = 0
    return {"input_ids": torch.randint(0, 6, (4, length), generator=generator), "attention_mask": mask}


@pytest.mark.parametrize("wrap", [dict, UserDict])
def test_a_model_called_by_name_that_returns_logits_works(wrap):
    torch.manual_seed(0)
    model = Classifier(per_token=False).double()
    labels = torch.tensor([0, 2, 1, 1])
    batches = [wrap({**tokens(s, length), "labels": labels}) for s, length in ((0, 5), (1, 3))]
    result = estimate(model, batches, Dense(EmpiricalLabels()), progress=False)
    assert list(result.blocks) == ["words", "mix", "head"]
    assert result.count == 8
    losses, total = 0.0, torch.zeros(15, 15, dtype=torch.float64)
    for batch in batches:
        for i in range(4):
            one = {k: v[i : i + 1] for k, v in batch.items() if k != "labels"}
            loss = nn.functional.cross_entropy(model(**one).logits, labels[i : i + 1])
            weight, bias = torch.autograd.grad(loss, [model.head.weight, model.head.bias])
            g = torch.cat((weight, bias[:, None]), 1).flatten()
            total += g[:, None] * g
            losses += loss.item()
    assert result.nll == pytest.approx(losses, rel=1e-12)
    torch.testing.assert_close(result["head"].dense(), total)


def test_labels_of_minus_one_hundred_are_ignored_for_tokens():
    torch.manual_seed(0)
    model = Classifier(per_token=True).double()
    batch = tokens(0, 5)
    labels = torch.randint(0, 3, (4, 5))
    labels[batch["attention_mask"] == 0] = -100
    labels[3] = -100
    result = estimate(model, [{**batch, "labels": labels}], Dense(EmpiricalLabels()), progress=False)
    logits = model(**batch).logits
    expected = nn.functional.cross_entropy(logits.movedim(-1, 1), labels, reduction="sum")
    assert result.nll == pytest.approx(expected.item(), rel=1e-12)
    shorter = {k: v[:3] for k, v in {**batch, "labels": labels}.items()}
    without = estimate(model, [shorter], Dense(EmpiricalLabels()), progress=False)
    for block, matrix in without.blocks.items():
        torch.testing.assert_close(result[block].dense(), matrix.dense())


def test_classes_in_the_second_dimension_work_also_without_gradients_around():
    x, y = data("pixels")
    model = case("pixels").model
    plain = estimate(model, (x, y), Diagonal(EmpiricalLabels()), progress=False)
    with torch.no_grad():
        quiet = estimate(model, (x, y), Diagonal(EmpiricalLabels()), progress=False)
    for block, matrix in plain.blocks.items():
        assert torch.equal(quiet[block].values, matrix.values)


def test_one_output_may_come_with_targets_of_one_dimension():
    x, _ = data("one output")
    for likelihood, y in ((GaussianNoise(2.0), torch.randn(EXAMPLES)), (Bernoulli(), torch.arange(EXAMPLES) % 2)):
        first = estimate(case("one output").model, (x, y), Dense(ExactLabels()), likelihood, progress=False)
        second = estimate(case("one output").model, (x, y[:, None]), Dense(ExactLabels()), likelihood, progress=False)
        assert first.nll == second.nll
        assert torch.equal(first["0"].dense(), second["0"].dense())


@pytest.mark.parametrize("form", [(X, Y), TensorDataset(X, Y), DataLoader(TensorDataset(X, Y), batch_size=3)])
def test_a_worker_counts_the_batches_of_its_own_share(form):
    for rank in range(2):
        workers = Workers(rank, 2)
        assert batch_count(form, 3, workers) == len(list(batches(form, 3, workers)))
    assert batch_count(form, 3) == -(-len(X) // 3)


def test_a_batch_whose_activations_are_large_goes_through_in_parts():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 96, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(96, 2))
    x, y = torch.randn(40, 3, 96, 96), torch.arange(40) % 2
    met = []
    hook = model.register_forward_pre_hook(lambda _, given: met.append(len(given[0])))
    whole = estimate(model, (x, y), KFAC(ExactLabels()), progress=False)
    hook.remove()
    assert met[:2] == [2, 2]  # a look at the network, and one at what its layers put out
    assert sum(met[2:]) == 40
    assert 10 < max(met) <= 2**27 / (2 * 96 * 96 * 96 * 4)
    small = estimate(model, (x, y), KFAC(ExactLabels()), batch_size=10, progress=False)
    assert whole.nll == pytest.approx(small.nll, rel=1e-6)
    for name, matrix in whole.blocks.items():
        assert float(matrix.trace()) == pytest.approx(float(small[name].trace()), rel=1e-4)
