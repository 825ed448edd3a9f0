"""Every kind of layer against gradients of single examples by automatic differentiation."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from watching import (
    CONVOLUTIONS,
    EVERY,
    EXAMPLES,
    SEPARABLE,
    build,
    check_gradients,
    close,
    filled,
    numbers,
    tokens,
    watch,
)

from posterity.blocks import base, convolution, find_blocks, linear, read_blocks
from posterity.blocks.conv_overlap import BandMoment
from posterity.blocks.conv_shifts import ShiftMoment
from posterity.blocks.linear import RowMoment, gram

every_layer = pytest.mark.parametrize("kind", EVERY)
every_separable_layer = pytest.mark.parametrize("kind", SEPARABLE)
every_convolution = pytest.mark.parametrize("kind", CONVOLUTIONS)


@pytest.fixture(params=[False, True], ids=["at once", "piece by piece"])
def chunks(request, monkeypatch):
    """The limit on temporaries as it is, and so small that everything goes piece by piece."""
    if request.param:
        for module in (base, convolution, linear):
            monkeypatch.setattr(module, "CHUNK", 1)


@every_layer
def test_writing_what_was_read_gives_the_parameters_back(kind):
    model, _ = build(EVERY[kind])
    ((name, block),) = find_blocks(model).items()
    parameters = {role: model.get_parameter(full).detach() for role, full in block.parameters.items()}
    matrix = read_blocks(model, {name: block})[name]
    assert matrix.shape == block.shape
    written = block.layer.write(matrix)
    assert written.keys() == parameters.keys()
    assert all(torch.equal(written[role], parameters[role]) for role in parameters)
    assert torch.equal(block.layer.read(written), matrix)


@every_layer
def test_draws_are_written_one_by_one(kind):
    model, _ = build(EVERY[kind])
    (block,) = find_blocks(model).values()
    draws = numbers(2, 3, *block.shape)
    written = block.layer.write(draws)
    for i in range(2):
        for j in range(3):
            one = block.layer.write(draws[i, j])
            assert all(torch.equal(written[role][i, j], one[role]) for role in one)
            assert torch.equal(block.layer.read(one), draws[i, j])


def test_the_bias_is_the_last_column_and_the_weight_row_major_before_it():
    conv = nn.Conv2d(2, 3, 2)
    (matrix,) = read_blocks(conv, find_blocks(conv)).values()
    assert torch.equal(matrix[:, -1], conv.bias.detach())
    assert torch.equal(matrix[1, :-1], conv.weight.detach()[1].reshape(-1))
    embedding = nn.Embedding(5, 2)
    (matrix,) = read_blocks(embedding, find_blocks(embedding)).values()
    assert torch.equal(matrix, embedding.weight.detach().T)
    norm = nn.LayerNorm((2, 3))
    (matrix,) = read_blocks(norm, find_blocks(norm)).values()
    assert torch.equal(matrix, torch.tensor([[1.0, 0.0]] * 6))


@every_layer
def test_gradients_are_those_of_single_examples(kind, chunks):
    model, x = build(EVERY[kind])
    check_gradients(model, lambda m: m(x))


@every_layer
def test_rows_multiply_to_the_gradients_and_positions_counts_them(kind, chunks):
    model, x = build(EVERY[kind])
    block, a, s = watch(model, lambda m: m(x)).only()
    inputs, outputs = block.layer.rows(a, s)
    assert inputs.shape == (EXAMPLES, block.layer.positions(a, s), block.layer.inp)
    assert outputs.shape == (EXAMPLES, block.layer.positions(a, s), block.layer.out)
    close(outputs.mT @ inputs, block.layer.gradients(a, s))


@every_separable_layer
def test_the_output_moment_is_the_product_of_the_gradient_rows(kind):
    model, x = build(SEPARABLE[kind])
    block, a, s = watch(model, lambda m: m(x)).only()
    rows = block.layer.rows(a, s)[1].flatten(0, 1)
    moment = block.layer.output_moment()
    for part in s.split((2, 1, 2)):
        moment.add(part)
    close(moment.matrix(), rows.T @ rows)


@every_separable_layer
def test_input_moments_add_up_over_uneven_batches(kind, chunks):
    model, x = build(SEPARABLE[kind], examples=20)
    block, a, s = watch(model, lambda m: m(x), examples=20).only()
    rows = block.layer.rows(a, s)[0].flatten(0, 1)
    moment = block.layer.input_moment(a.shape)
    done = 0
    # More batches than are summed in the network's precision at a time, so a total is there too.
    for size in (3, 1, *[1] * 14, 2):
        moment.add(a[done : done + size])
        done += size
    assert done == 20
    close(moment.matrix().to(rows.dtype), rows.T @ rows)
    assert moment.rows == len(rows)
    assert moment.matrix().dtype == torch.float64


@every_convolution
def test_pixel_rows_and_patches_give_one_input_moment(kind):
    model, x = build(CONVOLUTIONS[kind])
    block, a, s = watch(model, lambda m: m(x)).only()
    layer = block.layer
    rows = layer.rows(a, s)[0].flatten(0, 1)
    ways = [RowMoment(layer.bias, layer.patches)]
    if layer.mode == "constant" and layer.dilation[0] == 1:
        ways.append(BandMoment(layer.window(tuple(a.shape[2:])), layer.pictures))
    for way in ways:
        way.add(a[:2])
        way.matrix()  # looking at the sum does not disturb it
        way.add(a[2:])
        close(way.matrix(), rows.T @ rows)
        assert way.rows == len(rows)


def test_overlapping_patches_are_not_written_out():
    """The geometry of LeNet-5's second layer, where rows of pixels are cheaper by far; and one where they are not."""
    small, large = (find_blocks(nn.Conv2d(c, 4, k)).popitem()[1].layer for c, k in ((6, 5), (6, 2)))
    assert isinstance(small.input_moment(torch.Size((2, 6, 14, 14))), BandMoment)
    assert isinstance(large.input_moment(torch.Size((2, 6, 64, 64))), RowMoment)


@pytest.mark.parametrize("size", [(1, 1), (1, 4), (2, 3), (5, 4)])
@pytest.mark.parametrize(("groups", "bias"), [(1, True), (1, False), (2, True)])
def test_shifted_pictures_and_patches_give_one_input_moment(size, groups, bias):
    """Also where a picture is smaller than a kernel, and its first row is its last."""
    layer = find_blocks(nn.Conv2d(groups * 3, 4, 3, padding=1, groups=groups, bias=bias))[""].layer
    a = numbers(5, groups * 3, *size)
    patches = RowMoment(layer.bias, layer.patches)
    shifts = ShiftMoment(layer.channels, layer.bias, layer.pictures)
    for way in (patches, shifts):
        way.add(a[:2])
        way.matrix()
        way.add(a[2:])
    assert torch.equal(shifts.matrix(), shifts.matrix().T)
    assert shifts.rows == patches.rows
    assert shifts.matrix().dtype == patches.matrix().dtype
    close(shifts.matrix(), patches.matrix())


@pytest.mark.parametrize("other", [{"stride": 2}, {"padding": 0}, {"dilation": 2}, {"padding_mode": "reflect"}])
def test_only_the_usual_kernel_is_taken_as_shifts(other):
    shape = torch.Size((2, 32, 64, 64))
    usual = {"padding": 1}
    layer, odd = (find_blocks(nn.Conv2d(32, 4, 3, **kind))[""].layer for kind in (usual, usual | other))
    assert isinstance(layer.input_moment(shape), ShiftMoment)
    assert isinstance(odd.input_moment(shape), RowMoment)


def test_a_frozen_bias_is_no_column():
    model = filled(
        nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.LayerNorm(3), nn.Unflatten(1, (1, 3)), nn.Conv1d(1, 2, 2))
    )
    for module in (model[0], model[2], model[4]):
        module.bias.requires_grad_(False)
    seen = check_gradients(model, lambda m: m(numbers(EXAMPLES, 4)))
    assert {name: block.shape for name, block in seen.blocks.items()} == {"0": (3, 4), "2": (3, 1), "4": (2, 2)}
    for name, block in seen.blocks.items():
        assert list(block.parameters) == ["weight"], name


def test_the_padding_entry_of_an_embedding_counts_for_nothing():
    model = filled(nn.Sequential(nn.Embedding(4, 3, padding_idx=2)))
    x = torch.tensor([[0, 2, 2], [1, 1, 3]])
    block, a, s = watch(model, lambda m: m(x), examples=2).only()
    assert torch.equal(block.layer.gradients(a, s)[..., 2], torch.zeros(2, 3, dtype=torch.float64))
    moment = block.layer.input_moment(a.shape)
    moment.add(a)
    assert torch.equal(moment.matrix(), torch.diag(torch.tensor([1.0, 2.0, 0.0, 1.0], dtype=torch.float64)))


def test_a_large_vocabulary_is_kept_diagonal_without_a_matrix_for_an_example():
    (block,) = find_blocks(nn.Embedding(8193, 2)).values()
    assert not block.layer.separable
    layer = find_blocks(nn.Embedding(7, 2, padding_idx=3))[""].layer
    assert layer.separable
    calls = [(tokens(EXAMPLES, 6, vocabulary=7, seed=k), numbers(EXAMPLES, 6, 2, seed=k)) for k in range(2)]
    gradients = sum(layer.gradients(a, s) for a, s in calls)
    close(layer.squares(calls), gradients.square().sum(0))


@pytest.mark.parametrize("columns", [1, 1023, 1024, 2051])
def test_symmetric_products_do_not_depend_on_how_they_are_split(columns):
    x = numbers(5, columns)
    close(gram(x), x.T @ x)
    weights = torch.rand(5, 1, dtype=torch.float64)
    close(gram(x, weights * x), x.T @ (weights * x))


def test_a_sum_of_products_that_has_been_given_out_does_not_change_afterwards():
    moment = RowMoment(bias=True)
    moment.add(numbers(4, 3))
    first = moment.matrix()
    kept = first.clone()
    moment.add(numbers(4, 3, seed=1))
    assert torch.equal(first, kept)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("kind", ["linear", "conv2d", "batch norm 2d", "layer norm", "rms norm", "group norm"])
def test_half_precision_is_summed_in_single(kind, dtype):
    model, x = build(EVERY[kind])
    model, x = model.to(dtype), x.to(dtype)
    seen = watch(model, lambda m: m(x), loss=lambda out: out.float().square().flatten(1).sum(1))
    block, a, s = seen.only()
    assert a.dtype == s.dtype == torch.float32
    g = block.layer.gradients(a, s)
    assert g.dtype == torch.float32
    single = watch(model.double(), lambda m: m(x.double()), loss=lambda out: out.square().flatten(1).sum(1)).gradients(
        block.name
    )
    torch.testing.assert_close(g.double(), single, rtol=0.1, atol=0.05 * float(single.abs().max()))


def test_positions_of_a_convolution_are_its_pixels_and_groups():
    (block,) = find_blocks(nn.Conv2d(4, 6, 3, groups=2)).values()
    s = numbers(1, 6, 5, 4)
    assert block.layer.positions(numbers(1, 4, 7, 6), s) == 5 * 4 * 2
