"""Tables as they are, and series as what random convolutions make of them."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from posterity_studies.shared.labelled.wheels import read

Rows = tuple[Tensor, Tensor]

KERNELS = 300


def scikit_learn(name: str) -> Rows:
    from sklearn import datasets

    found = getattr(datasets, f"load_{name}")()
    return torch.tensor(found.data, dtype=torch.float64), torch.tensor(found.target)


def orange(path: str) -> Rows:
    """A table of Orange's: numbers as they are, words as indicators, gaps as the column's mean; rows of its class."""
    lines = [line.split("\t") for line in read("orange3", f"Orange/{path}.tab").splitlines()]
    header, body = lines[1:3], [row for row in lines[3:] if len(row) == len(lines[0])]
    roles = [role.strip() for role in header[1]]
    goal = roles.index("class")
    columns = []
    for j, role in enumerate(roles):
        if role in {"class", "meta", "i"}:
            continue
        cells = [row[j].strip() for row in body]
        known = [c for c in cells if c not in {"?", "", "NA"}]
        if header[0][j] in {"c", "continuous"}:
            mean = math.fsum(map(float, known)) / len(known)
            columns.append([float(c) if c in known else mean for c in cells])
        else:
            columns += [[float(c == value) for c in cells] for value in sorted(set(known))[1:]]
    names = sorted({row[goal] for row in body})
    return torch.tensor(columns, dtype=torch.float64).mT, torch.tensor([names.index(row[goal]) for row in body])


def series(name: str, equal: str = "") -> Rows:
    """A set of the UCR archive through fixed random convolutions: the share of positive values and the maximum of each."""
    folder = f"aeon/datasets/data/{name}/{name}{equal}"
    lines = [
        line
        for part in ("TRAIN", "TEST")
        for line in read("aeon", f"{folder}_{part}.ts").splitlines()
        if line and line[0] not in "@#"
    ]
    fields = [line.split(":") for line in lines]
    x = torch.tensor([[[float(v) for v in channel.split(",")] for channel in row[:-1]] for row in fields])
    names = sorted({row[-1] for row in fields})
    return random_convolutions(x), torch.tensor([names.index(row[-1]) for row in fields])


@torch.no_grad()
def random_convolutions(x: Tensor, kernels: int = KERNELS) -> Tensor:
    """Two numbers a kernel (as in ROCKET, Dempster et al. 2020), after each series is brought to mean 0 and variance 1."""
    generator = torch.Generator().manual_seed(0)
    x = (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True).clamp_min(1e-6)
    channels, length = x.shape[1:]
    found = []
    for k in range(kernels):
        width = (7, 9, 11)[k % 3]
        reach = math.log2(max(2.0, (length - 1) / (width - 1)))
        dilation = int(2 ** (reach * float(torch.rand((), generator=generator))))
        weight = torch.randn(1, channels, width, generator=generator)
        weight = (weight - weight.mean(-1, keepdim=True)) / channels**0.5
        bias = 2 * torch.rand(1, generator=generator) - 1
        out = nn.functional.conv1d(x, weight, bias, dilation=dilation, padding=(width - 1) * dilation // 2)[:, 0]
        found += [(out > 0).float().mean(-1), out.amax(-1)]
    return torch.stack(found, 1).double()


TABLES: dict[str, Callable[[], Rows]] = {
    "wine": lambda: scikit_learn("wine"),
    "breast cancer": lambda: scikit_learn("breast_cancer"),
    "iris": lambda: scikit_learn("iris"),
    "digits": lambda: scikit_learn("digits"),
    "ionosphere": lambda: orange("tests/datasets/ionosphere"),
    "heart disease": lambda: orange("datasets/heart_disease"),
    "yeast": lambda: orange("datasets/brown-selected"),
    "vowels": lambda: series("JapaneseVowels", "_eq"),
    "leaves": lambda: series("OSULeaf"),
    "power demand": lambda: series("ItalyPowerDemand"),
    "arrowheads": lambda: series("ArrowHead"),
    "gun point": lambda: series("GunPoint"),
}
