"""Two folders of images, with laplace-torch: fine-tuning from the first, a posterior from the second. No prior is handed down.

For its grid search two of ten images of each class are kept out of training; the marginal likelihood needs none.
"""

import csv
from pathlib import Path

import numpy as np
import torch
from laplace import Laplace
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.walks.inputs import report, scores, tuning


def read(folder: str) -> tuple[torch.Tensor, torch.Tensor, list[str]]:
    files = sorted(Path(folder).glob("*/*.png"))
    names = sorted({path.parent.name for path in files})
    x = torch.stack([torch.from_numpy(np.array(Image.open(p), dtype=np.float32))[None] / 255 for p in files])
    return x, torch.tensor([names.index(p.parent.name) for p in files]), [str(p) for p in files]


def train(model: nn.Module, x: torch.Tensor, y: torch.Tensor, epochs: int) -> None:
    optimiser = torch.optim.Adam(model.parameters(), 1e-3, weight_decay=1e-4)
    for _ in range(epochs):
        for a, b in DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(a), b).backward()
            optimiser.step()


torch.manual_seed(0)
layers = [nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)]
layers += [nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)]
model = nn.Sequential(*layers)
train(model, *read("digits")[:2], epochs=30)
torch.save(model.state_dict(), "source.pt")
model[-1] = nn.Linear(84, 10)
x, y, names = read("letters")
each = 8 if tuning == "gridsearch" else 10
few = torch.cat([(y == c).nonzero()[:each, 0] for c in range(10)])
held = torch.cat([(y == c).nonzero()[each:10, 0] for c in range(10)])
rest = torch.ones(len(y), dtype=torch.bool)
rest[few] = rest[held] = False
train(model, x[few], y[few], epochs=60)
model.eval()
la = Laplace(model, "classification")
la.fit(DataLoader(TensorDataset(x[few], y[few]), batch_size=50))
la.optimize_prior_precision(method=tuning, val_loader=DataLoader(TensorDataset(x[held], y[held]), batch_size=50))
torch.save(la.state_dict(), "theirs.pt")
with torch.no_grad():
    probs = la(x[rest], pred_type="glm", link_approx="probit")
kept = [name for name, is_rest in zip(names, rest.tolist(), strict=True) if is_rest]
with open("theirs.csv", "w", newline="", encoding="utf-8") as file:
    csv.writer(file).writerows(
        [
            ["input", "class", "confidence"],
            *zip(kept, probs.argmax(1).tolist(), probs.max(1).values.tolist(), strict=True),
        ]
    )
report(**scores(probs, y[rest]))
