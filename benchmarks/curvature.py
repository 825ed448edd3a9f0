"""Curvature in one pass: ours and other libraries beside a plain epoch, on three networks.

On the ResNets everybody works on convolutions and linear layers only: the peers know no others.
"""

from dataclasses import dataclass, replace
from functools import partial

from torch import Tensor, nn

import posterity
from benchmarks.measure import Case, Jobs, Row, measured
from benchmarks.networks import LENET5, RESNET18, RESNET50, Workload, plain_epoch
from benchmarks.peers import PEERS, Peer, Run, Work, quiet
from posterity import EKFAC, KFAC, KFOC, Diagonal
from posterity.curvature import Estimator, ExactLabels

NAME = "posterity"


def ours(estimator: Estimator) -> Run:
    """Our `estimate` in the form in which peers are run."""

    def run(model: nn.Module, x: Tensor, y: Tensor, batch: int) -> list[Tensor]:
        posterity.estimate(model, (x, y), estimator, blocks=[nn.Conv2d, nn.Linear], batch_size=batch, progress=False)
        return []

    return run


OURS: list[Peer] = [
    Peer(NAME, "kfac-sampled", ours(KFAC())),
    Peer(NAME, "kfac-exact", ours(KFAC(labels=ExactLabels()))),
    Peer(NAME, "ekfac-sampled", ours(EKFAC())),
    Peer(NAME, "kfoc-sampled", ours(KFOC())),
    Peer(NAME, "kfoc-exact", ours(KFOC(labels=ExactLabels()))),
    Peer(NAME, "diagonal-sampled", ours(Diagonal())),
    Peer(NAME, "diagonal-exact", ours(Diagonal(labels=ExactLabels()))),
]

ORDER: tuple[Work, ...] = (
    "kfac-sampled",
    "kfac-exact",
    "ekfac-sampled",
    "kfoc-sampled",
    "kfoc-exact",
    "diagonal-sampled",
    "diagonal-exact",
)

TARGETS: dict[tuple[str, Work], float] = {
    ("lenet5", "kfac-sampled"): 2.0,
    ("lenet5", "kfac-exact"): 5.0,
    ("lenet5", "ekfac-sampled"): 4.0,
    ("lenet5", "kfoc-sampled"): 3.5,
    ("lenet5", "kfoc-exact"): 8.0,
    ("lenet5", "diagonal-sampled"): 2.5,
    ("resnet18", "ekfac-sampled"): 12.0,
}
"""How many plain epochs our estimators may cost."""

MEMORY_TARGET = 6 * 2**30
"""What ResNet-50 may take, K-FOC included."""


@dataclass(frozen=True)
class Line:
    """One line of a table: who does what on which network, and how patiently it is measured."""

    name: str
    work: Work
    load: Workload
    repeats: int
    cpu_limit: int = 600

    def measure(self) -> list[Row]:
        """The row of this line, with the reason in it where nothing could be measured."""
        own = self.name == NAME
        row = Row(
            self.name,
            self.work,
            self.load.network,
            self.load.examples,
            self.load.batch,
            target_ratio=TARGETS.get((self.load.network, self.work)) if own else None,
            target_bytes=MEMORY_TARGET if own and self.load.network == "resnet50" else None,
        )
        setup = partial(jobs, self.name, self.work, self.load)
        return [measured(row, setup, repeats=self.repeats, cpu_limit=self.cpu_limit)]


def jobs(name: str, work: Work, load: Workload) -> Jobs:
    """A library's work on a workload beside a plain epoch on the same, by name so that a process can be sent for it."""
    (peer,) = (p for p in (*OURS, *PEERS) if (p.name, p.work) == (name, work))
    model, x, y = load.make()

    def candidate() -> None:
        with quiet():
            peer.run(model, x, y, load.batch)

    def warm_up() -> None:
        # A library is imported and its kernels are chosen on a small network too; on a large one, minutes of
        # eigendecompositions would go into it.
        small, images, labels = replace(LENET5, examples=2 * load.batch).make()
        with quiet():
            peer.run(small, images, labels, load.batch)
        plain_epoch(model, x[: load.batch], y[: load.batch], load.batch)

    return Jobs(lambda: plain_epoch(model, x, y, load.batch), candidate, warm_up)


def cases(*, quick: bool = False) -> list[Case]:
    """All lines of the three tables, ours first: should a run be cut short, that is what must not be missing."""
    found = [*_lenet5(), *_resnet18(), *_resnet50()]
    found.sort(key=lambda line: (line.name != NAME, _NETWORKS.index(line.load.network), _decomposes(line)))
    if quick:
        # Eigendecompositions of a ResNet's factors take minutes however few the images.
        found = [line for line in found if line.load is LENET5 or not _decomposes(line)]
        found = [replace(line, load=_small(line.load), repeats=1) for line in found]
    return [Case(f"{line.load.network} {line.work} {line.name}", line.measure) for line in found]


# What takes seconds is repeated, what takes minutes is measured once. On the ResNets a line takes minutes, so the peers
# there are two backends of laplace-torch. What a whole fit adds is the same eigendecompositions whichever backend came
# before: one line tells of it.


def _lenet5() -> list[Line]:
    ours: dict[Work, int] = dict.fromkeys(ORDER, 5)
    ours |= {"kfac-exact": 3, "diagonal-exact": 3, "kfoc-exact": 1}
    lines = [Line(peer.name, peer.work, LENET5, ours[peer.work]) for peer in OURS]
    for peer in PEERS:
        repeats = 1 if "whole fit" in peer.name or peer.work.endswith("exact") else 2
        lines.append(Line(peer.name, peer.work, LENET5, repeats))
    return lines


def _resnet18() -> list[Line]:
    ours: dict[Work, int] = {
        "kfac-sampled": 2,
        "kfac-exact": 1,
        "ekfac-sampled": 1,
        "kfoc-sampled": 1,
        "diagonal-sampled": 2,
    }
    works: tuple[Work, ...] = ("kfac-sampled", "kfac-exact")
    return [
        *(Line(NAME, work, RESNET18, repeats) for work, repeats in ours.items()),
        *(Line(name, work, RESNET18, 1) for name in ON_RESNETS for work in works),
        Line(f"{ON_RESNETS[0]}, whole fit", "kfac-sampled", RESNET18, 1),
    ]


def _resnet50() -> list[Line]:
    ours: tuple[Work, ...] = ("kfac-sampled", "kfac-exact", "ekfac-sampled", "kfoc-sampled", "diagonal-sampled")
    works: tuple[Work, ...] = ("kfac-sampled", "kfac-exact")
    return [
        *(Line(NAME, work, RESNET50, 1, cpu_limit=1200) for work in ours),
        *(Line(name, work, RESNET50, 1) for name in ON_RESNETS for work in works),
    ]


ON_RESNETS = ("laplace-torch (asdl)", "laplace-torch (curvlinops)")
_NETWORKS = ("lenet5", "resnet18", "resnet50")


def _decomposes(line: Line) -> bool:
    return line.work == "ekfac-sampled" or "whole fit" in line.name


def _small(load: Workload) -> Workload:
    examples, batch, side = {"lenet5": (512, 256, 28), "resnet18": (16, 8, 32), "resnet50": (4, 2, 32)}[load.network]
    return replace(load, examples=examples, batch=batch, shape=(load.shape[0], side, side))
