"""`nn.MultiheadAttention` computes through fused functions that no hook can see into; here it is spelled out."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from posterity.blocks.base import Layer, Recorder

Parts = tuple[tuple[str, Layer] | None, tuple[str, Layer] | None]
"""In- and out-projection as named blocks, None where one is not watched."""


def attention(
    module: nn.MultiheadAttention,
    recorder: Recorder,
    parts: Parts,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """The forward pass of `module` in evaluation mode, with its two linear maps tapped as blocks `parts`.

    Self-attention calls the fused in-projection once. Where query, key and value differ, each distinct input is a
    call of its own whose gradient is zero in the rows of the others.
    """
    in_part, out_part = parts
    if is_causal and attn_mask is None:
        raise RuntimeError("attention was given is_causal=True, which says what attn_mask is, and got no attn_mask.")
    batched = query.ndim == 3
    time_first = batched and not module.batch_first
    inputs = [query, key, value]
    q, k, v = _project(module, recorder, in_part, inputs, time_first)
    if not batched:
        q, k, v = (x.unsqueeze(0) for x in (q, k, v))
    n, target, source = q.shape[0], q.shape[1], k.shape[1]
    heads = module.num_heads
    if module.bias_k is not None and module.bias_v is not None:
        k, v = torch.cat((k, module.bias_k.expand(n, 1, -1)), 1), torch.cat((v, module.bias_v.expand(n, 1, -1)), 1)
    q, k, v = (x.unflatten(-1, (heads, -1)).transpose(1, 2) for x in (q, k, v))
    if module.add_zero_attn:
        k, v = (F.pad(x, (0, 0, 0, 1)) for x in (k, v))
    mask = _mask(attn_mask, key_padding_mask, n, heads, target, source, q.dtype)
    if mask is not None:
        mask = F.pad(mask, (0, k.shape[2] - source))  # what was added is seen by all
    scores = q @ k.mT / q.shape[-1] ** 0.5
    weights = (scores if mask is None else scores + mask).softmax(-1)
    mixed = (weights @ v).transpose(1, 2).flatten(2)
    if not batched:
        mixed = mixed.squeeze(0)
    projection = module.out_proj
    out = F.linear(mixed, projection.weight, projection.bias)
    if out_part is not None:
        out = recorder.tap(*out_part, mixed, out)
    if time_first:
        out = out.transpose(0, 1)
    if not need_weights:
        return out, None
    reported = weights.mean(1) if average_attn_weights else weights
    return out, reported if batched else reported.squeeze(0)


def _project(
    module: nn.MultiheadAttention,
    recorder: Recorder,
    part: tuple[str, Layer] | None,
    inputs: list[Tensor],
    time_first: bool,
) -> list[Tensor]:
    weight, bias = module.in_proj_weight, module.in_proj_bias
    size = module.embed_dim
    if weight is None:  # keys or values of another size: three weights, which are no block
        weights = (module.q_proj_weight, module.k_proj_weight, module.v_proj_weight)
        biases = (None,) * 3 if bias is None else bias.split(size)
        inputs = [x.transpose(0, 1) if time_first else x for x in inputs]
        return [F.linear(x, w, b) for x, w, b in zip(inputs, weights, biases, strict=True)]
    results: list[Tensor | None] = [None, None, None]
    for first in range(3):
        if results[first] is not None:
            continue
        # All parts from here on that read the same tensor are one call, if they are neighbours in the fused weight.
        last = first
        while last + 1 < 3 and inputs[last + 1] is inputs[first]:
            last += 1
        rows = slice(first * size, (last + 1) * size)
        x = inputs[first].transpose(0, 1) if time_first else inputs[first]
        out = F.linear(x, weight[rows], None if bias is None else bias[rows])
        if part is not None:
            around = (first * size, (2 - last) * size)
            out = recorder.tap(*part, x, out, partial(F.pad, pad=around) if any(around) else None)
        for i, projected in enumerate(out.split(size, -1)):
            results[first + i] = projected
    return [x for x in results if x is not None]


def _mask(
    attn: Tensor | None, padding: Tensor | None, n: int, heads: int, target: int, source: int, dtype: torch.dtype
) -> Tensor | None:
    """Both masks as numbers to add to the scores [n, heads, target, source]."""
    total = None
    if attn is not None:
        shaped = attn if attn.ndim == 2 else attn.view(n, heads, target, source)
        total = _additive(shaped, dtype)
    if padding is not None:
        added = _additive(padding, dtype).view(n, 1, 1, source)
        total = added if total is None else total + added
    return total


def _additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    if mask.dtype != torch.bool:
        return mask.to(dtype)
    return torch.zeros_like(mask, dtype=dtype).masked_fill(mask, float("-inf"))


_ATTENTION = threading.Lock()
_without: list[bool] = []
"""What the switch below was before, once for every caller that has turned it off."""


@contextmanager
def plain_attention() -> Iterator[None]:
    """Transformer layers call their modules, which the fused path would not; torch has one switch for all threads."""
    with _ATTENTION:
        _without.append(torch.backends.mha.get_fastpath_enabled() if not _without else _without[0])
        torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        with _ATTENTION:
            before = _without.pop()
            if not _without:
                torch.backends.mha.set_fastpath_enabled(before)
