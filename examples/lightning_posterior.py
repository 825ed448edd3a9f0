"""A network trained by Lightning becomes a posterior, and the posterior a prior inside the next training step.

Run it with `python examples/lightning_posterior.py`; it needs `pip install lightning` and no download.
"""

from __future__ import annotations

import logging
import warnings

import lightning
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import posterity as pt


class Classifier(lightning.LightningModule):
    """A small classifier; with a prior, its penalty is part of the loss."""

    def __init__(self, network: nn.Module, examples: int, prior: pt.Gaussian | None = None) -> None:
        super().__init__()
        self.network, self.examples = network, examples
        self.penalty = None if prior is None else pt.laplace.PriorPenalty(prior, network)

    def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
        x, y = batch
        loss = nn.functional.cross_entropy(self.network(x), y)
        return loss if self.penalty is None else loss + self.penalty() / self.examples

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.network.parameters(), lr=1e-2)


def examples(count: int, seed: int, turn: float) -> TensorDataset:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 2, generator=generator)
    return TensorDataset(x, ((x[:, 0] + turn * x[:, 1]).sin() > 0).long())


def trained(module: Classifier, data: TensorDataset, epochs: int) -> None:
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
    trainer = lightning.Trainer(max_epochs=epochs, accelerator="cpu", logger=False, **quiet)
    trainer.fit(module, DataLoader(data, batch_size=32, shuffle=True))


def main() -> float:
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning")
    lightning.seed_everything(0, verbose=False)
    network = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))
    first, second, new = examples(400, 1, 0.5), examples(20, 2, 0.8), examples(200, 3, 0.8)
    trained(Classifier(network, len(first)), first, epochs=20)
    prior = pt.posterior(network, first, progress=False).posterior  # the module inside, not the LightningModule

    trained(Classifier(network, len(second), prior), second, epochs=20)
    posterior = pt.update(network, pt.estimate(network, second, pt.EKFAC(), progress=False), prior)
    x, y = new.tensors
    scores = pt.metrics.score(pt.predict(network, posterior, x).probs, y)
    print(f"accuracy {scores.accuracy:.2f}, NLL {scores.nll:.3f}")
    return scores.accuracy


if __name__ == "__main__":
    main()
