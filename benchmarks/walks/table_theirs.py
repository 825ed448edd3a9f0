"""A regression from a CSV file, with laplace-torch: reading, scaling and training are ours to write."""

import csv
import math

import numpy as np
import torch
from laplace import Laplace
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.walks.inputs import report


def read(path: str) -> tuple[torch.Tensor, torch.Tensor]:
    with open(path, encoding="utf-8", newline="") as file:
        rows = torch.tensor([[float(v) for v in row] for row in list(csv.reader(file))[1:]])
    return rows[:, :-1], rows[:, -1:]


x, y = read("yacht-train.csv")
mean, scale, shift, size = x.mean(0), x.std(0), y.mean(), y.std()
data = TensorDataset((x - mean) / scale, (y - shift) / size)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(x.shape[1], 64), nn.ReLU(), nn.Linear(64, 1))
optimiser = torch.optim.Adam(model.parameters(), 1e-2)
for _ in range(500):
    for a, b in DataLoader(data, batch_size=64, shuffle=True):
        optimiser.zero_grad()
        nn.functional.mse_loss(model(a), b).backward()
        optimiser.step()
la = Laplace(model, "regression", subset_of_weights="all", hessian_structure="kron")
la.fit(DataLoader(data, batch_size=64))
log_prior, log_noise = torch.zeros(1, requires_grad=True), torch.zeros(1, requires_grad=True)
evidence = torch.optim.Adam([log_prior, log_noise], 1e-1)
for _ in range(100):
    evidence.zero_grad()
    (-la.log_marginal_likelihood(log_prior.exp(), log_noise.exp())).backward()
    evidence.step()
x, y = read("yacht-test.csv")
f, variance = la((x - mean) / scale)
found = f.detach() * size + shift
deviation = (variance[:, 0].detach() + la.sigma_noise.detach() ** 2).sqrt() * size
with open("theirs.csv", "w", newline="", encoding="utf-8") as file:
    csv.writer(file).writerows([["mean", "std"], *np.column_stack([found, deviation]).tolist()])
nll = 0.5 * ((found - y) / deviation) ** 2 + deviation.log() + 0.5 * math.log(2 * math.pi)
report(rmse=(found - y).square().mean().sqrt(), nll=nll.mean())
