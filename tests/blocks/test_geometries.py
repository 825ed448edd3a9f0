"""Random convolutions: moments from rows of pixels against patches that are written out."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn
from watching import check_gradients, close, filled, numbers

from posterity.blocks import find_blocks
from posterity.blocks.conv_overlap import BandMoment
from posterity.blocks.linear import RowMoment

CONV = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}


@st.composite
def geometries(draw, dilate_rows: bool) -> tuple[nn.Module, torch.Tensor]:
    dims = draw(st.integers(1, 3))
    sizes = [draw(st.integers(1, 7 if dims < 3 else 4)) for _ in range(dims)]
    kernel = [draw(st.integers(1, 4 if dims < 3 else 3)) for _ in range(dims)]
    dilation = [draw(st.integers(1, 3)) for _ in range(dims)]
    if not dilate_rows:
        dilation[0] = 1
    stride = [draw(st.integers(1, 3)) for _ in range(dims)]
    padding = draw(
        st.one_of(st.sampled_from(["same", "valid"]), st.lists(st.integers(0, 3), min_size=dims, max_size=dims))
    )
    if padding == "same":
        stride = [1] * dims
        around = [0] * dims
    else:
        around = [0] * dims if padding == "valid" else padding
        for size, k, d, p in zip(sizes, kernel, dilation, around, strict=True):
            assume(size + 2 * p >= d * (k - 1) + 1)
    groups = draw(st.integers(1, 3))
    channels, filters = groups * draw(st.integers(1, 2)), groups * draw(st.integers(1, 2))
    conv = CONV[dims](
        channels,
        filters,
        tuple(kernel),
        stride=tuple(stride),
        padding=padding if isinstance(padding, str) else tuple(padding),
        dilation=tuple(dilation),
        groups=groups,
        bias=draw(st.booleans()),
    )
    return filled(conv, draw(st.integers(0, 99))), numbers(3, channels, *sizes, seed=draw(st.integers(0, 99)))


@settings(max_examples=150, deadline=None)
@given(geometries(dilate_rows=False))
def test_products_of_pixel_rows_hold_every_product_of_patches(geometry):
    conv, x = geometry
    (block,) = find_blocks(conv).values()
    layer = block.layer
    bands = BandMoment(layer.window(tuple(x.shape[2:])), layer.pictures)
    patches = RowMoment(layer.bias, layer.patches)
    for way in (bands, patches):
        way.add(x[:1])
        way.add(x[1:])
    close(bands.matrix(), patches.matrix())
    assert bands.rows == patches.rows == len(x) * conv(x)[0, 0].numel() * conv.groups


@settings(max_examples=100, deadline=None)
@given(geometries(dilate_rows=True))
def test_patches_times_the_kernel_are_the_convolution(geometry):
    conv, x = geometry
    (block,) = find_blocks(conv).values()
    out = conv(x)
    rows, _ = block.layer.rows(x, out)
    matrix = block.layer.read(dict(conv.named_parameters()))
    # Group g's rows, times group g's filters.
    by_group = rows.unflatten(1, (conv.groups, -1)) @ matrix.unflatten(0, (conv.groups, -1)).mT
    close(by_group.transpose(2, 3).reshape(out.shape), out)


@settings(max_examples=60, deadline=None)
@given(geometries(dilate_rows=True))
def test_gradients_of_any_convolution_are_those_of_single_examples(geometry):
    conv, x = geometry
    check_gradients(conv, lambda m: m(x), examples=3, may_vanish=True)


def test_same_padding_of_an_even_kernel_falls_where_torch_puts_it():
    conv = filled(nn.Conv1d(1, 1, 4, padding="same", bias=False))
    x = numbers(1, 1, 6)
    (block,) = find_blocks(conv).values()
    close(F.conv1d(block.layer.padded(x), conv.weight), conv(x))
