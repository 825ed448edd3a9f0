"""`nn.MultiheadAttention` spelled out is `nn.MultiheadAttention`, and its projections have the right gradients."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from watching import check_gradients, close, filled, losses, numbers, oracle, watch

from posterity.blocks import Recorder, find_blocks, watched
from posterity.errors import UnsupportedLayer

N, TARGET, SOURCE, WIDTH, HEADS = 3, 4, 5, 6, 2


def made(**options) -> nn.MultiheadAttention:
    return filled(nn.MultiheadAttention(WIDTH, HEADS, **options))


def both_ways(module: nn.Module, *args, examples: int = N, **kwargs):
    """Outputs and attention weights of a module in evaluation mode: on its own, and under watch."""
    module.eval()
    expected = module(*args, **kwargs)
    with watched(module, find_blocks(module)) as listen:
        listen(Recorder(examples, lambda name, a: None, lambda name, calls: None))
        return module(*args, **kwargs), expected


def same(found, expected) -> None:
    close(found[0].detach(), expected[0].detach())
    assert (found[1] is None) == (expected[1] is None)
    if expected[1] is not None:
        close(found[1].detach(), expected[1].detach())


def sequences(batch_first: bool, kind: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    q, k, v = numbers(N, TARGET, WIDTH), numbers(N, SOURCE, WIDTH, seed=1), numbers(N, SOURCE, WIDTH, seed=2)
    if not batch_first:
        q, k, v = (x.transpose(0, 1).contiguous() for x in (q, k, v))
    return {
        "self": (q, q, q),
        "cross": (q, k, k),
        "all different": (q, k, v),
        "query is key": (k, k, v),
        "query is value": (k, v, k),
    }[kind]


every_kind = pytest.mark.parametrize("kind", ["self", "cross", "all different", "query is key", "query is value"])
either_order = pytest.mark.parametrize("batch_first", [True, False], ids=["batch first", "time first"])


@every_kind
@either_order
@pytest.mark.parametrize("bias", [True, False])
def test_attention_and_its_gradients_are_those_of_the_module(kind, batch_first, bias):
    module = made(batch_first=batch_first, bias=bias)
    inputs = sequences(batch_first, kind)
    same(*both_ways(module, *inputs))
    seen = check_gradients(
        module,
        lambda m: m(*inputs, need_weights=False)[0],
        examples=N,
        loss=lambda out: losses(out, dim=0 if batch_first else 1),
    )
    assert {name: block.shape for name, block in seen.blocks.items()} == {
        "in_proj": (3 * WIDTH, WIDTH + bias),
        "out_proj": (WIDTH, WIDTH + bias),
    }


@every_kind
@pytest.mark.parametrize("options", [{}, {"add_zero_attn": True}], ids=str)
@pytest.mark.parametrize("average", [True, False])
@pytest.mark.parametrize(
    ("mask", "padding"),
    [
        ("none", "bool"),
        ("none", "float"),
        ("bool", "none"),
        ("bool", "bool"),
        ("float", "none"),
        ("float", "float"),
        ("bool for each head", "bool"),
        ("float for each head", "none"),
    ],
)
def test_masks_and_weights_are_those_of_the_module(kind, options, average, mask, padding):
    module = made(batch_first=True, dropout=0.5, **options)
    q, k, v = sequences(True, kind)
    scores = numbers(N * HEADS, q.shape[1], k.shape[1], seed=5)
    hidden = numbers(N, k.shape[1], seed=6) > 0.5
    hidden[:, 0] = False
    forbidden = scores > 0.5
    forbidden[..., 0] = False
    attn_mask = {
        "none": None,
        "bool": forbidden[0],
        "float": scores[0],
        "bool for each head": forbidden,
        "float for each head": scores,
    }[mask]
    key_padding_mask = {"none": None, "bool": hidden, "float": numbers(N, k.shape[1], seed=7)}[padding]
    found, expected = both_ways(
        module, q, k, v, attn_mask=attn_mask, key_padding_mask=key_padding_mask, average_attn_weights=average
    )
    same(found, expected)


def test_masked_attention_has_the_gradients_of_the_module():
    module = made(batch_first=True, add_zero_attn=True)
    q, k, v = sequences(True, "cross")
    hidden = torch.zeros(N, SOURCE, dtype=torch.bool)
    hidden[1, 3:] = True
    ahead = torch.ones(TARGET, SOURCE).triu(1).bool()
    check_gradients(module, lambda m: m(q, k, v, key_padding_mask=hidden, attn_mask=ahead)[0], examples=N)


def test_a_causal_hint_goes_with_its_mask_and_not_alone():
    module = made(batch_first=True)
    x = sequences(True, "self")
    ahead = nn.Transformer.generate_square_subsequent_mask(TARGET, dtype=torch.float64)
    for need_weights in (True, False):
        same(*both_ways(module, *x, attn_mask=ahead, is_causal=True, need_weights=need_weights))
    blocks = find_blocks(module)
    with watched(module, blocks) as listen:
        listen(Recorder(N, lambda name, a: None, lambda name, calls: None))
        with pytest.raises(RuntimeError, match="attn_mask"):
            module(*x, is_causal=True)


@pytest.mark.parametrize("batch_first", [True, False])
def test_one_sequence_without_a_batch_is_one_example(batch_first):
    module = made(batch_first=batch_first)
    q, k = numbers(TARGET, WIDTH), numbers(SOURCE, WIDTH, seed=1)
    hidden = torch.tensor([False, False, True, False, True])
    same(*both_ways(module, q, k, k, key_padding_mask=hidden, examples=1))
    same(*both_ways(module, q, q, q, need_weights=False, examples=1))
    check_gradients(module, lambda m: m(q, k, k)[0], examples=1, loss=lambda out: losses(out[None]))


def test_attention_with_frozen_extra_keys_is_that_of_the_module():
    module = made(batch_first=True, add_bias_kv=True, add_zero_attn=True)
    with pytest.raises(UnsupportedLayer, match=r"in_proj.*bias_k.*bias_v"):
        find_blocks(module)
    module.bias_k.requires_grad_(False)
    module.bias_v.requires_grad_(False)
    q, k, v = sequences(True, "cross")
    ahead = torch.ones(TARGET, SOURCE).triu(2).bool()
    same(*both_ways(module, q, k, v, attn_mask=ahead))
    check_gradients(module, lambda m: m(q, k, v, attn_mask=ahead)[0], examples=N)


@either_order
def test_with_keys_of_another_size_only_the_out_projection_is_a_block(batch_first):
    module = made(batch_first=batch_first, kdim=3, vdim=2)
    with pytest.raises(UnsupportedLayer, match=r"k_proj_weight.*q_proj_weight.*v_proj_weight"):
        find_blocks(module)
    shapes = [(N, TARGET, WIDTH), (N, SOURCE, 3), (N, SOURCE, 2)]
    inputs = [numbers(*s) if batch_first else numbers(s[1], s[0], s[2]) for s in shapes]
    seen = check_gradients(
        module,
        lambda m: m(*inputs)[0],
        examples=N,
        loss=lambda out: losses(out, dim=0 if batch_first else 1),
        select="out_proj",
    )
    assert list(seen.blocks) == ["out_proj"]


@pytest.mark.parametrize("frozen", ["in_proj", "out_proj"])
def test_half_of_an_attention_can_be_frozen(frozen):
    module = made(batch_first=True)
    for name, p in module.named_parameters():
        p.requires_grad_(not name.startswith(frozen))
    x = sequences(True, "self")
    seen = check_gradients(module, lambda m: m(*x)[0], examples=N)
    assert frozen not in seen.blocks
    assert len(seen.blocks) == 1


def test_a_subclass_with_a_forward_of_its_own_is_not_taken_for_attention():
    class Mine(nn.MultiheadAttention):
        def forward(self, query, key, value):
            return self.out_proj(query * self.in_proj_weight.sum()), None

    with pytest.raises(UnsupportedLayer, match=r'"in" \(Mine: no known matrix form\)'):
        find_blocks(nn.ModuleDict({"in": Mine(WIDTH, HEADS)}))


class Encoder(nn.Module):
    def __init__(self, batch_first: bool, norm_first: bool, layers: int) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(
            WIDTH, HEADS, 7, dropout=0.3, batch_first=batch_first, norm_first=norm_first, activation="gelu"
        )
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False) if layers else layer
        self.head = nn.Linear(WIDTH, 2)

    def forward(self, x: torch.Tensor, hidden: torch.Tensor | None = None) -> torch.Tensor:
        return self.head(self.encoder(x, src_key_padding_mask=hidden))


@either_order
@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("layers", [0, 2])
@pytest.mark.parametrize("training", [True, False])
def test_transformer_encoders_have_the_gradients_of_single_examples(batch_first, norm_first, layers, training):
    model = filled(Encoder(batch_first, norm_first, layers)).train(training)
    x = numbers(N, TARGET, WIDTH) if batch_first else numbers(TARGET, N, WIDTH)
    hidden = torch.zeros(N, TARGET, dtype=torch.bool)
    hidden[0, 2:] = True
    assert torch.backends.mha.get_fastpath_enabled()
    seen = watch(model, lambda m: m(x, hidden), examples=N, loss=lambda out: losses(out, dim=0 if batch_first else 1))
    assert torch.backends.mha.get_fastpath_enabled()
    assert all(m.training is training for m in model.modules())
    assert len(seen.calls) == len(seen.blocks) == 6 * max(1, layers) + 1
    # The oracle needs gradients of weights, so torch's own fused path stays away by itself.
    expected = oracle(
        model, seen.blocks, lambda m: m(x, hidden), N, lambda out: losses(out, dim=0 if batch_first else 1)
    )
    for name in seen.blocks:
        close(seen.gradients(name), expected[name])


def test_a_full_transformer_with_its_decoder():
    model = filled(nn.Transformer(WIDTH, HEADS, 1, 1, 7, batch_first=True))
    source, target = numbers(N, SOURCE, WIDTH), numbers(N, TARGET, WIDTH, seed=1)
    ahead = nn.Transformer.generate_square_subsequent_mask(TARGET, dtype=torch.float64)
    seen = check_gradients(model, lambda m: m(source, target, tgt_mask=ahead, tgt_is_causal=True), examples=N)
    assert len(seen.calls["decoder.layers.0.multihead_attn.in_proj"]) == 2
    assert len(seen.calls["decoder.layers.0.self_attn.in_proj"]) == 1


def test_two_attentions_with_one_in_projection_are_one_block():
    model = nn.ModuleList([made(batch_first=True), made(batch_first=True)])
    model[1].in_proj_weight, model[1].in_proj_bias = model[0].in_proj_weight, model[0].in_proj_bias
    x = sequences(True, "self")[0]

    def run(m):
        y = m[0](x, x, x)[0]
        return m[1](y, y, y)[0]

    seen = check_gradients(model, run, examples=N)
    assert list(seen.blocks) == ["0.in_proj", "0.out_proj", "1.out_proj"]
    assert len(seen.calls["0.in_proj"]) == 2
