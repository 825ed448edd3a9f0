"""The forward of columns, beside one written by hand."""

from __future__ import annotations

import pytest
import torch
from made import HEAD, LATERALS, network
from torch import Tensor, nn

from posterity import estimate
from posterity.blocks import find_blocks, read_blocks
from posterity.curvature import Dense, ExactLabels
from posterity.errors import ChangedInput, LateralMismatch
from posterity.progressive import Architecture, Column, Network


def grown(n: int, dtype: torch.dtype = torch.float64) -> list[Column]:
    """Columns with weights of their own everywhere, laterals too."""
    architecture = Architecture.of(network(dtype=dtype), LATERALS, HEAD)
    columns: list[Column] = []
    torch.manual_seed(1)
    for t in range(n):
        column = architecture.grow(columns, 3 + t, seed=t)
        with torch.no_grad():
            for part in (column.module, column.laterals):
                for p in part.parameters():
                    p.copy_(torch.randn_like(p))
        columns.append(column)
    return columns


def by_hand(columns: list[Column], x: Tensor) -> list[Tensor]:
    """Column by column, layer by layer: s = mean of own and lateral pre-activations."""
    second, fourth, outputs = [], [], []
    for column in columns:
        layers = list(column.module)  # type: ignore[call-overload]
        second.append(torch.tanh(layers[0](x)))
        n = len(second)
        s = layers[2](second[-1]) + sum(column.laterals[i][0](second[i]) for i in range(n - 1))  # type: ignore[index, operator]
        fourth.append(torch.tanh(s / n))
        s = layers[4](fourth[-1]) + sum(column.laterals[i][1](fourth[i]) for i in range(n - 1))  # type: ignore[index, operator]
        outputs.append(layers[6](torch.tanh(s / n)))
    return outputs


@pytest.mark.parametrize("n", [1, 2, 3])
def test_forward_is_the_mean_over_columns_written_by_hand(n: int) -> None:
    columns = grown(n)
    x = torch.randn(5, 4, dtype=torch.float64)
    expected = by_hand(columns, x)
    for t in range(n):
        found = Network(columns[: t + 1], tuple(LATERALS))(x)
        torch.testing.assert_close(found, expected[t], rtol=1e-12, atol=1e-12)
        hidden = Network(columns[: t + 1], tuple(LATERALS), past=t)(x)
        torch.testing.assert_close(hidden, expected[t], rtol=1e-12, atol=1e-12)


def test_only_the_new_column_has_gradients() -> None:
    columns = grown(3)
    network = Network(columns, tuple(LATERALS), past=2)
    assert {name.split(".")[1] for name, _ in network.named_parameters()} == {"2"}
    network(torch.randn(5, 4, dtype=torch.float64)).sum().backward()
    assert all(p.grad is not None for p in network.parameters())
    assert all(p.grad is None for column in columns[:2] for p in column.module.parameters())


def test_curvature_sees_the_share_that_a_layer_has_in_the_mean() -> None:
    """Each layer's own gradient is a t-th of the mean's: the dense Fisher by autograd says the same."""
    columns = grown(3)
    network = Network(columns, tuple(LATERALS), past=2)
    x, y = torch.randn(4, 4, dtype=torch.float64), torch.tensor([0, 1, 2, 3])
    found = estimate(network, (x, y), Dense(labels=ExactLabels()), progress=False)
    for name in ("columns.2.2", "laterals.2.0.0", "laterals.2.1.1", "columns.2.0"):
        block = find_blocks(network)[name]
        weight, bias = (dict(network.named_parameters())[block.parameters[r]] for r in ("weight", "bias"))
        fisher = torch.zeros(weight.numel() + bias.numel(), weight.numel() + bias.numel(), dtype=torch.float64)
        for example in x:
            logits = network(example[None])[0]
            for c, p in enumerate(logits.detach().softmax(-1)):
                g = torch.autograd.grad(logits.log_softmax(-1)[c], (weight, bias), retain_graph=True)
                flat = torch.cat((g[0], g[1][:, None]), 1).flatten()
                fisher += p * torch.outer(flat, flat)
        torch.testing.assert_close(found[name].dense(), fisher, rtol=1e-9, atol=1e-10)


def test_running_leaves_no_hook_behind() -> None:
    columns = grown(2)
    Network(columns, tuple(LATERALS))(torch.randn(2, 4, dtype=torch.float64))
    assert not any(module._forward_hooks for c in columns for module in c.module.modules())


def test_the_model_given_is_never_changed() -> None:
    model = network()
    before = read_blocks(model, find_blocks(model))
    Architecture.of(model, LATERALS, HEAD).grow([], 7, seed=3)
    after = read_blocks(model, find_blocks(model))
    assert all(torch.equal(before[name], after[name]) for name in before)


class Twice(nn.Module):
    """Calls its layer twice."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer(torch.relu(self.layer(x))))


def test_a_layer_called_twice_meets_the_earlier_columns_call_by_call() -> None:
    architecture = Architecture.of(Twice().double(), ["layer"], "head")
    first = architecture.grow([], 2, 0)
    second = architecture.grow([first], 2, 1)
    with torch.no_grad():
        for p in (*first.module.parameters(), *second.laterals.parameters()):
            p.copy_(torch.randn_like(p))
    x = torch.randn(3, 4, dtype=torch.float64)
    inner = torch.relu(first.module.layer(x))
    lateral, own = second.laterals[0][0], second.module.layer  # type: ignore[index]
    h = torch.relu((own(x) + lateral(x)) / 2)
    expected = second.module.head((own(h) + lateral(inner)) / 2)
    torch.testing.assert_close(Network([first, second], ("layer",))(x), expected, rtol=1e-12, atol=1e-12)


class Growing(nn.Module):
    """A layer whose calls depend on a setting that a copy may have otherwise."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head, self.times, self.wide = nn.Linear(4, 4), nn.Linear(4, 2), 1, 1

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(self.times):
            x = self.layer(x)[: len(x) * self.wide]
        return self.head(x)


def test_columns_that_call_a_layer_another_number_of_times_are_refused() -> None:
    architecture = Architecture.of(Growing(), ["layer"], "head")
    first = architecture.grow([], 2, 0)
    second = architecture.grow([first], 2, 1)
    second.module.times = 2
    with pytest.raises(LateralMismatch, match="called 2 times in this column and 1 times in column 0"):
        Network([first, second], ("layer",))(torch.randn(3, 4))


def test_columns_whose_layers_change_shape_are_refused() -> None:
    architecture = Architecture.of(Growing(), ["layer"], "head")
    first = architecture.grow([], 2, 0)
    second = architecture.grow([first], 2, 1)
    second.module.layer = nn.Linear(4, 5)
    with pytest.raises(
        LateralMismatch, match=r'layer "layer" gives \(3, 5\) in this column and \(3, 4\) from column 0'
    ):
        Network([first, second], ("layer",))(torch.randn(3, 4))


class InPlace(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.layer, self.head = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        x += self.layer(x)
        return self.head(x)


def test_an_input_changed_in_place_is_refused() -> None:
    architecture = Architecture.of(InPlace(), ["layer"], "head")
    first = architecture.grow([], 2, 0)
    second = architecture.grow([first], 2, 1)
    with torch.no_grad(), pytest.raises(ChangedInput, match="changed in place"):
        Network([first, second], ("layer",))(torch.randn(3, 4))
