"""How a network calls its layers: twice, in place, with the batch in another dimension, or not at all."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from watching import EXAMPLES, check_gradients, close, filled, losses, numbers, tokens, watch

import posterity as pt
from posterity.blocks import (
    Recorder,
    TransposedLinearLayer,
    find_blocks,
    network,
    read_blocks,
    register_layer,
    watched,
    write_blocks,
)
from posterity.errors import BatchLost, ChangedInput, UnreachedBlock, UnsupportedLayer


class Calls(nn.Module):
    """A network whose forward pass is a function of its layers."""

    def __init__(self, forward, **layers: nn.Module) -> None:
        super().__init__()
        self.compute = forward
        for name, layer in layers.items():
            self.add_module(name, layer)

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.compute(self, *inputs)


# --- shared weights ----------------------------------------------------------------------------------


def test_a_module_applied_twice_is_one_block_with_two_calls():
    model = filled(Calls(lambda m, x: m.fc(torch.tanh(m.fc(x))), fc=nn.Linear(4, 4)))
    seen = check_gradients(model, lambda m: m(numbers(EXAMPLES, 4)))
    assert len(seen.calls["fc"]) == len(seen.inputs["fc"]) == 2


def test_calls_of_different_sizes_add_up():
    model = filled(Calls(lambda m, x: m.conv(x).mean((2, 3)) + m.conv(x[..., :3]).sum((2, 3)), conv=nn.Conv2d(2, 3, 2)))
    seen = check_gradients(model, lambda m: m(numbers(EXAMPLES, 2, 5, 4)))
    assert [c.s.shape[2:] for c in seen.calls["conv"]] == [(4, 3), (4, 2)]


def test_a_module_registered_under_two_names_is_one_block():
    fc = nn.Linear(4, 4)
    model = filled(Calls(lambda m, x: m.b(torch.tanh(m.a(x))), a=fc, b=fc))
    seen = check_gradients(model, lambda m: m(numbers(EXAMPLES, 4)))
    assert list(seen.blocks) == ["a"]


def shared(second: nn.Module, *roles: str, first: nn.Module | None = None) -> nn.Module:
    """Two layers one behind the other, the second with some of the first's parameters."""
    first = first or nn.Linear(4, 4)
    for role in roles:
        setattr(second, role, getattr(first, role))
    return filled(Calls(lambda m, x: m.b(torch.tanh(m.a(x))), a=first, b=second))


def test_two_modules_that_share_their_parameters_are_one_block():
    model = shared(nn.Linear(4, 4), "weight", "bias")
    seen = check_gradients(model, lambda m: m(numbers(EXAMPLES, 4)))
    assert list(seen.blocks) == ["a"]
    assert len(seen.calls["a"]) == 2
    assert seen.blocks["a"].modules == (model.a, model.b)


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (shared(nn.Linear(4, 4), "weight"), r'"b" \(Linear: it shares its weight with "a" in another role'),
        (shared(nn.Linear(4, 4), "bias"), r'"b" \(Linear: it shares its bias with "a" in another role'),
        (shared(nn.Linear(4, 4, bias=False), "weight"), r'it shares its weight with "a"'),
        (
            shared(nn.Conv2d(2, 2, 3, padding=2), "weight", "bias", first=nn.Conv2d(2, 2, 3)),
            r'it shares its weight and bias with "a" in another role',
        ),
        (
            shared(nn.BatchNorm1d(4), "weight", "bias", first=nn.BatchNorm1d(4)),
            r'it shares parameters with "a", and each normalises in its own way',
        ),
    ],
    ids=["weight only", "bias only", "bias missing", "other padding", "norms"],
)
def test_parameters_shared_in_another_role_are_refused(model, says):
    with pytest.raises(UnsupportedLayer, match=says):
        find_blocks(model)
    # Leaving one of the two out is the remedy.
    assert list(find_blocks(model, "a")) == ["a"]


@pytest.mark.parametrize("bias", [False, True], ids=["without bias", "with a bias"])
def test_an_embedding_and_the_head_that_shares_its_weight_are_one_block(bias):
    head = nn.Linear(4, 7, bias=bias)
    words = nn.Embedding(7, 4)
    head.weight = words.weight
    model = filled(Calls(lambda m, x: m.head(torch.tanh(m.words(x))), words=words, head=head))
    seen = check_gradients(model, lambda m: m(tokens(EXAMPLES, 6, vocabulary=7)))
    assert {name: block.shape for name, block in seen.blocks.items()} == {"words": (4 + bias, 7)}
    assert len(seen.calls["words"]) == 2
    # Whoever selects one of the two means the weight, and both use it.
    for select in ("words", "head"):
        assert find_blocks(model, select)["words"].modules == (words, head)
    matrix = read_blocks(model, seen.blocks)["words"]
    written = write_blocks(seen.blocks, {"words": matrix})
    assert all(torch.equal(written[name], model.get_parameter(name)) for name in written)
    assert len(written) == 1 + bias


@pytest.mark.parametrize("estimator", [pt.KFAC(), pt.KFOC(), pt.EKFAC(), pt.Diagonal()], ids=str)
def test_a_tied_embedding_has_the_diagonal_of_the_dense_oracle(estimator):
    words, head = nn.Embedding(7, 4), nn.Linear(4, 7)
    head.weight = words.weight
    model = filled(Calls(lambda m, x: m.head(torch.tanh(m.words(x)).sum(1)), words=words, head=head))
    data = (tokens(EXAMPLES, 6, vocabulary=7), torch.arange(EXAMPLES))
    options = {"progress": False, "batch_size": 3}
    found = pt.estimate(model, data, replace(estimator, labels=pt.curvature.ExactLabels()), **options)["words"]
    exact = pt.estimate(model, data, pt.curvature.Dense(pt.curvature.ExactLabels()), **options)["words"]
    close(found.dense().diagonal(), exact.dense().diagonal())


def test_a_parameter_that_a_container_only_keeps_belongs_to_the_layer_that_uses_it():
    model = Calls(lambda m, x: m.out(x), out=nn.Linear(4, 3))
    model.bias = model.out.bias
    seen = check_gradients(filled(model), lambda m: m(numbers(EXAMPLES, 4)))
    assert {name: block.shape for name, block in seen.blocks.items()} == {"out": (3, 5)}


class InputsFirst(nn.Module):
    """A linear layer of somebody's own, with the weight the other way round."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.zeros(4, 3)), nn.Parameter(torch.zeros(3))

    def forward(self, x):
        return x @ self.weight + self.bias


@pytest.mark.parametrize("kind", [InputsFirst, f"{__name__}.InputsFirst"], ids=["by class", "by name"])
def test_a_layer_of_ones_own_can_be_registered(kind, monkeypatch):
    monkeypatch.setattr(network, "REGISTERED", dict(network.REGISTERED))
    model = filled(nn.Sequential(InputsFirst()))
    with pytest.raises(UnsupportedLayer, match="InputsFirst"):
        find_blocks(model)
    register_layer(kind, TransposedLinearLayer.of)
    seen = check_gradients(model, lambda m: m(numbers(EXAMPLES, 6, 4)))
    assert seen.blocks["0"].shape == (3, 5)
    matrix = read_blocks(model, seen.blocks)["0"]
    torch.testing.assert_close(write_blocks(seen.blocks, {"0": matrix})["0.weight"], model[0].weight.detach())


# --- in place ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Linear(4, 4), (4,)),
        (nn.Linear(4, 4, bias=False), (3, 4)),
        (nn.Conv2d(4, 4, 3, padding=1), (4, 3, 3)),
        (nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4)), (4,)),
        (nn.Sequential(nn.Conv1d(4, 4, 1), nn.BatchNorm1d(4)), (4, 3)),
        (nn.Sequential(nn.Linear(4, 4), nn.RMSNorm(4)), (3, 4)),
    ],
    ids=lambda x: type(x).__name__ if isinstance(x, nn.Module) else str(x),
)
def test_activations_in_place_and_residuals_in_place(layer, shape):
    def forward(m, x):
        y = m.layer(x)
        y += x
        y = F.relu(y, inplace=True)
        return m.last(y.flatten(1)).mul_(2)

    size = torch.Size(shape).numel()
    model = filled(Calls(forward, layer=layer, last=nn.Linear(size, 3)))
    x = numbers(EXAMPLES, *shape)
    kept = x.clone()
    check_gradients(model, lambda m: m(x))
    assert torch.equal(x, kept)


def test_an_activation_in_place_right_behind_the_only_layer():
    model = filled(nn.Sequential(nn.Linear(4, 3), nn.ReLU(inplace=True)))
    check_gradients(model, lambda m: m(numbers(EXAMPLES, 4)))


def test_an_embedding_changed_in_place():
    model = filled(Calls(lambda m, x: m.words(x).mul_(3).sum(1), words=nn.Embedding(5, 3)))
    check_gradients(model, lambda m: m(tokens(EXAMPLES, 4, vocabulary=5)))


def test_dropout_is_off_under_watch_and_on_again_behind_it():
    model = filled(nn.Sequential(nn.Linear(4, 30), nn.Dropout(0.5), nn.Linear(30, 2))).train()
    check_gradients(model, lambda m: m(numbers(EXAMPLES, 4)))
    assert not torch.equal(model(numbers(EXAMPLES, 4)), model(numbers(EXAMPLES, 4)))


# --- where the batch is ------------------------------------------------------------------------------


def test_the_batch_may_be_the_second_dimension():
    def forward(m, x):
        return m.out(torch.tanh(m.norm(m.words(x)))).mean(0)

    model = filled(Calls(forward, words=nn.Embedding(7, 4), norm=nn.LayerNorm(4), out=nn.Linear(4, 3)))
    for time in (2, 3, 2 * EXAMPLES):  # a multiple of the batch must not be taken for a folded one
        x = tokens(time, EXAMPLES, vocabulary=7)
        seen = check_gradients(model, lambda m, x=x: m(x))
        assert all(len(c.a) == len(c.s) == EXAMPLES for calls in seen.calls.values() for c in calls)


def test_a_batch_folded_into_the_first_dimension_comes_apart_again():
    """Frames of a film side by side: [n · frames, channels, ...]. As many channels as examples must not mislead."""

    def forward(m, x):
        y = torch.tanh(m.norm(m.conv(x.flatten(0, 1))))
        y = torch.tanh(m.groups(y)) + m.instance(y)
        return m.out(m.last(y.mean((2, 3)))).unflatten(0, x.shape[:2]).sum(1)

    for channels in (2, EXAMPLES, 3):
        model = Calls(
            forward,
            conv=nn.Conv2d(channels, 2 * EXAMPLES, 3, padding=1),
            norm=nn.BatchNorm2d(2 * EXAMPLES),
            groups=nn.GroupNorm(2, 2 * EXAMPLES),
            instance=nn.InstanceNorm2d(2 * EXAMPLES, affine=True),
            last=nn.BatchNorm1d(2 * EXAMPLES),
            out=nn.Linear(2 * EXAMPLES, 3),
        )
        for frames in (1, 3, EXAMPLES):
            x = numbers(EXAMPLES, frames, channels, 4, 3)
            seen = check_gradients(filled(model), lambda m, x=x: m(x))
            for name, block in seen.blocks.items():
                (call,) = seen.calls[name]
                a, s = block.layer.rows(call.a, call.s)
                assert a.shape[:2] == s.shape[:2] == (EXAMPLES, block.layer.positions(call.a, call.s))
                close(s.mT @ a, seen.gradients(name))
            block, (call,) = seen.blocks["conv"], seen.calls["conv"]
            a, s = (x.flatten(0, 1) for x in block.layer.rows(call.a, call.s))
            inputs, outputs = block.layer.input_moment(call.a.shape), block.layer.output_moment()
            inputs.add(call.a)
            outputs.add(call.s)
            close(inputs.matrix(), a.T @ a)
            close(outputs.matrix(), s.T @ s)
            assert inputs.rows == outputs.rows == len(a)


@pytest.mark.parametrize("groups", [1, 2])
def test_a_folded_grouped_convolution_comes_apart_again(groups):
    model = filled(
        Calls(
            lambda m, x: m.conv(x.flatten(0, 1)).flatten(1).unflatten(0, x.shape[:2]).sum(1),
            conv=nn.Conv1d(4, 6, 2, stride=2, groups=groups),
        )
    )
    block, a, s = check_gradients(model, lambda m: m(numbers(EXAMPLES, 3, 4, 5))).only()
    rows = block.layer.rows(a, s)
    close(rows[1].mT @ rows[0], block.layer.gradients(a, s))


def test_one_example_a_batch_is_never_lost():
    def forward(m, x):
        return m.out(m.place(torch.arange(4))[None] + m.words(x)).sum(1)

    model = filled(Calls(forward, words=nn.Embedding(7, 4), place=nn.Embedding(4, 4), out=nn.Linear(4, 3)))
    check_gradients(model, lambda m: m(tokens(1, 4, vocabulary=7)), examples=1)


def positions(shape: tuple[int, ...], numbers: Tensor, words: int) -> nn.Module:
    def forward(m, x):
        return m.out(torch.tanh(m.words(x) + m.place(numbers.view(shape)))).sum(1)

    return filled(Calls(forward, words=nn.Embedding(7, 4), place=nn.Embedding(words, 4), out=nn.Linear(4, 3)))


@pytest.mark.parametrize("shape", [(10,), (7,), (1, 10), (1, EXAMPLES)], ids=str)
def test_positions_that_all_examples_share_have_a_gradient_for_each(shape):
    """Without a batch dimension a gradient would come back summed over examples."""
    time = shape[-1]
    model = positions(shape, torch.arange(time), time)
    seen = check_gradients(model, lambda m: m(tokens(EXAMPLES, time, vocabulary=7)))
    assert seen.calls["place"][0].a.shape == (EXAMPLES, time)
    segments = positions(shape, torch.ones(time, dtype=torch.long), 2)
    check_gradients(segments, lambda m: m(tokens(EXAMPLES, time, vocabulary=7)))


def test_as_many_positions_as_examples_are_refused_where_both_are_possible():
    model = positions((EXAMPLES,), torch.arange(EXAMPLES), EXAMPLES)
    with pytest.raises(BatchLost, match="Use another batch size"):
        watch(model, lambda m: m(tokens(EXAMPLES, EXAMPLES, vocabulary=7)))


@pytest.mark.parametrize("shape", [(10,), (1, 10)], ids=str)
def test_a_table_that_all_examples_share_is_refused(shape):
    """Numbers in no order may be anything, the examples of a folded batch among it."""
    model = positions(shape, torch.tensor([3, 1, 4, 1, 5, 9, 2, 6, 5, 3]), 10)
    x = tokens(EXAMPLES, 10, vocabulary=7)
    with pytest.raises(BatchLost, match=rf'block "place" .*{EXAMPLES} examples.*blocks='):
        watch(model, lambda m: m(x))
    check_gradients(model, lambda m: m(x), select=["words", "out"])


def test_a_layer_that_no_longer_tells_examples_apart_is_refused():
    model = filled(Calls(lambda m, x: m.out(x.sum(0, keepdim=True)).expand(len(x), -1), out=nn.Linear(4, 3)))
    with pytest.raises(BatchLost, match=r'block "out" sees a tensor of shape \(1, 4\) in a batch of 5 examples'):
        watch(model, lambda m: m(numbers(EXAMPLES, 4)))
    conv = filled(Calls(lambda m, x: m.conv(x[:3]), conv=nn.Conv1d(EXAMPLES, 1, 1)))
    with pytest.raises(BatchLost, match='block "conv"'):
        watch(conv, lambda m: m(numbers(EXAMPLES, EXAMPLES, 4)))
    norm = filled(Calls(lambda m, x: m.norm(x[:3]), norm=nn.BatchNorm1d(EXAMPLES)))
    with pytest.raises(BatchLost, match='block "norm"'):
        watch(norm, lambda m: m(numbers(EXAMPLES, EXAMPLES, 4)))


# --- not reached -------------------------------------------------------------------------------------


def test_a_module_never_reached_is_named_by_the_estimator():
    model = Calls(lambda m, x: m.used(x), used=nn.Linear(4, 3), unused=nn.Linear(4, 3), bypassed=nn.Linear(4, 3))
    data = (torch.randn(6, 4), torch.randint(3, (6,)))
    with pytest.raises(UnreachedBlock, match=r"\['unused', 'bypassed'\]"):
        pt.estimate(model, data, pt.KFAC(), progress=False)
    assert list(pt.estimate(model, data, pt.KFAC(), blocks="used", progress=False).blocks) == ["used"]


def test_a_call_that_the_output_does_not_depend_on_contributes_nothing():
    def forward(m, x):
        m.fc(x + 1)
        return m.fc(torch.tanh(m.fc(x)))

    model = filled(Calls(forward, fc=nn.Linear(4, 4)))
    seen = check_gradients(model, lambda m: m(numbers(EXAMPLES, 4)))
    assert len(seen.inputs["fc"]) == 3
    assert len(seen.calls["fc"]) == 2


def test_a_network_without_automatic_differentiation_is_refused():
    model = filled(Calls(lambda m, x: m.fc(x).detach(), fc=nn.Linear(4, 3)))
    with pytest.raises(UnreachedBlock, match=r"\['fc'\].*without automatic differentiation"):
        watch(model, lambda m: m(numbers(EXAMPLES, 4)))


@pytest.mark.parametrize("layer", [nn.Linear(4, 4), nn.RMSNorm(4), nn.LayerNorm(4)], ids=lambda m: type(m).__name__)
def test_a_layer_may_be_called_with_its_input_by_name(layer):
    word = "x" if isinstance(layer, nn.RMSNorm) else "input"
    model = filled(Calls(lambda m, x: m.layer(**{word: x}), layer=layer))
    check_gradients(model, lambda m: m(numbers(EXAMPLES, 4)))


# --- several backward passes -------------------------------------------------------------------------


def test_a_graph_that_is_kept_can_be_gone_back_through_again():
    model = filled(nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)))
    blocks = find_blocks(model)
    heard: list[tuple[str, Tensor]] = []
    recorder = Recorder(
        EXAMPLES, lambda name, a: None, lambda name, calls: heard.append((name, calls[0].s.clone())), keep_inputs=False
    )
    with watched(model, blocks) as listen:
        listen(recorder)
        out = model(numbers(EXAMPLES, 4))
        first, second = numbers(EXAMPLES, 2, seed=1), numbers(EXAMPLES, 2, seed=2)
        recorder.backward(out, first, again=True)
        recorder.backward(out, second, again=False)
    assert [name for name, _ in heard] == ["2", "0", "2", "0"]
    close(heard[0][1], first)
    close(heard[2][1], second)
    close(heard[1][1], (first @ model[2].weight * (1 - torch.tanh(model[0](numbers(EXAMPLES, 4))) ** 2)).detach())
    assert all(call.a is None for calls in recorder.calls.values() for call in calls)


def test_the_loss_over_the_second_dimension_is_the_oracle_of_itself():
    """The tests' own yardstick: losses of examples sum to the loss of the batch, along either dimension."""
    out = numbers(3, 4, 2)
    close(losses(out).sum(), torch.stack([losses(out[i : i + 1])[0] for i in range(3)]).sum())
    close(losses(out, dim=1), losses(out.transpose(0, 1)))


@pytest.mark.parametrize("waiting", [False, True])
def test_a_batch_that_has_been_added_may_be_overwritten(waiting):
    """A loader may fill one buffer again and again."""
    (block,) = find_blocks(nn.Linear(40 if waiting else 4, 3)).values()
    moment = block.layer.input_moment(torch.Size((5, block.layer.inp - 1)))
    x = numbers(5, block.layer.inp - 1)
    rows = torch.cat((x, x.new_ones(5, 1)), 1)
    moment.add(x)
    x.zero_()
    close(moment.matrix(), rows.T @ rows)


# --- inputs overwritten ------------------------------------------------------------------------------


def test_an_input_overwritten_after_the_layer_read_it_is_refused_by_name():
    def overwriting(m: nn.Module, x: Tensor) -> Tensor:
        h = torch.tanh(x)
        h += m.inner(h)
        return h

    def adding(m: nn.Module, x: Tensor) -> Tensor:
        h = torch.tanh(x)
        return h + m.inner(h)

    inner = filled(nn.Linear(4, 4))
    data = (numbers(6, 4), torch.arange(6) % 4)
    with pytest.raises(ChangedInput, match="inner"):
        pt.estimate(Calls(overwriting, inner=inner), data, pt.Diagonal(), progress=False)
    # KFAC takes what it needs on the way forward and is right all the same.
    ours, truth = (
        pt.estimate(Calls(f, inner=inner), data, pt.KFAC(labels=pt.curvature.ExactLabels()), progress=False)[
            "inner"
        ].dense()
        for f in (overwriting, adding)
    )
    close(ours, truth)
