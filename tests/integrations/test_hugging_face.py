"""Stock networks of transformers become posteriors as they are."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from watching import check_gradients, filled

import posterity as pt
from posterity.blocks import find_blocks

transformers = pytest.importorskip(
    "transformers", reason="transformers is not installed (posterity-torch[hugging-face])"
)

WORDS, EXAMPLES, LENGTH = 23, 6, 7


def built(name: str, **options: Any) -> nn.Module:
    """A network of a few hundred weights, by the name of its class, with random ones."""
    torch.manual_seed(0)
    sizes: dict[str, dict[str, Any]] = {
        "Bert": {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 6},
        "DistilBert": {"dim": 8, "n_layers": 1, "n_heads": 2, "hidden_dim": 6},
        "GPT2": {"n_embd": 8, "n_layer": 1, "n_head": 2, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 1},
    }
    (family,) = [f for f in sizes if name.startswith(f)]
    places = {"n_positions" if family == "GPT2" else "max_position_embeddings": 16}
    config = getattr(transformers, f"{family}Config")(vocab_size=WORDS, **sizes[family], **places, **options)
    return getattr(transformers, name)(config)


def texts(n: int = EXAMPLES) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(3)
    ids = torch.randint(2, WORDS, (n, LENGTH), generator=generator)
    mask = torch.ones_like(ids)
    mask[::2, 4:] = 0
    return {"input_ids": ids.masked_fill(mask == 0, 0), "attention_mask": mask}


CLASSIFIERS = ["BertForSequenceClassification", "DistilBertForSequenceClassification", "GPT2ForSequenceClassification"]
LANGUAGE = ["BertForMaskedLM", "DistilBertForMaskedLM", "GPT2LMHeadModel"]


@pytest.mark.parametrize("name", CLASSIFIERS + LANGUAGE)
def test_every_weight_is_in_a_block_with_the_gradients_of_automatic_differentiation(name):
    options = {"num_labels": 3} if name in CLASSIFIERS else {}
    model = filled(built(name, **options))
    seen = check_gradients(model, lambda m: m(**texts()).logits, EXAMPLES, may_vanish=True)
    assert sum(block.shape[0] * block.shape[1] for block in seen.blocks.values()) == sum(
        p.numel() for p in model.parameters()
    )


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_a_stock_classifier_becomes_a_posterior_and_a_prior_and_is_adapted(name):
    model = built(name, num_labels=3)
    data = [texts() | {"labels": torch.arange(EXAMPLES) % 3}, texts(3) | {"labels": torch.arange(3)}]
    fit = pt.posterior(model, data, progress=False)
    prior = pt.prior(model, [{k: v for k, v in batch.items() if k != "labels"} for batch in data], progress=False)
    again = pt.adapt(model, data, prior, progress=False)
    for found in (fit, again):
        probs = found.predict(texts(4)).probs
        assert probs.shape == (4, 3)
        torch.testing.assert_close(probs.sum(1), torch.ones(4), rtol=1e-4, atol=1e-4)
    assert list(fit.posterior.blocks) == list(find_blocks(model))


def test_a_language_model_becomes_a_posterior():
    model = built("GPT2LMHeadModel")
    fit = pt.posterior(model, [texts() | {"labels": texts()["input_ids"]}], progress=False)
    assert fit.predict(texts(2)).probs.shape == (2, LENGTH, WORDS)
