"""A network trained by Hugging Face's Trainer becomes a posterior, and the posterior the prior of the next Trainer.

Run it with `python examples/hugging_face_trainer.py`; it needs posterity-torch[hugging-face] and no download: the network is
small and starts from random weights.
"""

from __future__ import annotations

import tempfile
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset
from transformers import DistilBertConfig, DistilBertForSequenceClassification, Trainer, TrainingArguments

import posterity as pt


class Sentences(Dataset[dict[str, Tensor]]):
    """Eight words each; the label is whether the first comes from the second half of the vocabulary."""

    def __init__(self, count: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.words = torch.randint(1, 40, (count, 8), generator=generator)

    def __len__(self) -> int:
        return len(self.words)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        words = self.words[index]
        return {"input_ids": words, "attention_mask": torch.ones_like(words), "labels": (words[0] >= 20).long()}


class TrainerWithPrior(Trainer):
    """The Trainer, with a prior's penalty beside its mean loss."""

    def __init__(self, *args: Any, prior: pt.Gaussian, **options: Any) -> None:
        super().__init__(*args, **options)
        self.penalty = pt.laplace.PriorPenalty(prior, self.model)

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **options: Any) -> Any:
        loss, outputs = super().compute_loss(model, inputs, return_outputs=True, **options)
        loss = loss + self.penalty() / len(self.train_dataset)
        return (loss, outputs) if return_outputs else loss


def arguments(folder: str, epochs: int) -> TrainingArguments:
    return TrainingArguments(
        output_dir=folder,
        num_train_epochs=epochs,
        learning_rate=5e-3,
        per_device_train_batch_size=32,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
    )


def main() -> float:
    torch.manual_seed(0)
    size = {"dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 32, "dropout": 0.0, "attention_dropout": 0.0}
    model = DistilBertForSequenceClassification(DistilBertConfig(vocab_size=40, num_labels=2, **size))
    first, second, new = Sentences(256, 1), Sentences(24, 2), Sentences(100, 3)
    with tempfile.TemporaryDirectory() as folder:
        Trainer(model, arguments(folder, epochs=8), train_dataset=first).train()
        loader = torch.utils.data.DataLoader(first, batch_size=64)
        prior = pt.posterior(model, loader, progress=False).posterior  # what the first task leaves behind

        TrainerWithPrior(model, arguments(folder, epochs=4), train_dataset=second, prior=prior).train()
    curvature = pt.estimate(model, torch.utils.data.DataLoader(second, batch_size=24), pt.EKFAC(), progress=False)
    posterior = pt.update(model, curvature, prior)
    (batch,) = torch.utils.data.DataLoader(new, batch_size=len(new))
    labels = batch.pop("labels")
    scores = pt.metrics.score(pt.predict(model, posterior, batch).probs, labels)
    print(f"accuracy {scores.accuracy:.2f}, NLL {scores.nll:.3f}")
    return scores.accuracy


if __name__ == "__main__":
    main()
