"""What a network of ResNet-50's size costs: curvature, a prior's file, draws, predictions and training steps.

Weights and images are ImageNet's where the data root has them, else random. A prior whose *values* do not matter to the time
has stand-in factors and frames of the right sizes: products take as long whatever is in them.
"""

import gc
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import posterity
from benchmarks.measure import Case, _peak, _reset_peak, cpu_seconds
from benchmarks.networks import plain_epoch
from posterity import KFAC, KFOC, Gaussian
from posterity.algebra import FlooredMatrix, Kronecker, eigenvectors
from posterity.blocks import find_blocks, read_blocks
from posterity.curvature import Estimator
from posterity.data.batches import input_batches
from posterity.errors import NoDataSet
from posterity.laplace.prior import PriorPenalty
from posterity.predictive.draws import linear_draws
from posterity_studies.shared.datasets import imagenet_samples
from posterity_studies.shared.resnet import ResNet, frozen_norms, imagenet_resnet50, normalised, resnet50

SIDE = 128
BATCH = 8
DRAWS = 32
"""Of the linear network, two for one derivative."""
GIB = 2**30


@dataclass(frozen=True)
class Large:
    """One line: CPU time of a piece of work, beside its reference where it has one, and what it takes of memory."""

    work: str
    detail: str
    figure: float
    unit: str
    target: float | None
    seconds: float
    reference_seconds: float | None
    added_bytes: int
    """The peak beyond what was held before."""

    @property
    def key(self) -> tuple[str, ...]:
        """What tells this row from others of its file."""
        return ("large", self.work)


def network() -> ResNet:
    """ResNet-50 with frozen norm layers, with ImageNet's weights where they are."""
    try:
        return imagenet_resnet50()
    except NoDataSet:
        torch.manual_seed(0)
        return frozen_norms(resnet50(stride_in_1x1=True)).eval()


def images(count: int, side: int = SIDE) -> tuple[Tensor, Tensor]:
    """Images and labels of ImageNet, or random ones."""
    try:
        gallery = imagenet_samples()
        return normalised(gallery.decoded(range(count), side)[0]), gallery.labels[:count]
    except NoDataSet:
        generator = torch.Generator().manual_seed(0)
        return torch.randn(count, 3, side, side, generator=generator), torch.arange(count)


def stand_in(model: nn.Module, *, frames: bool) -> Gaussian:
    """A prior of the right sizes around the network's weights."""
    blocks = find_blocks(model)
    precision = {name: FlooredMatrix(_pair(*block.shape, frames), 1.0, 1.0) for name, block in blocks.items()}
    return Gaussian(read_blocks(model, blocks), precision)


def _pair(out: int, inp: int, frames: bool) -> Kronecker:
    sides = []
    for n in (out, inp):
        x = torch.randn(n, 16) / n**0.5
        sides.append(x @ x.T + 0.1 * torch.eye(n))
    pair = Kronecker.unchecked(*((x + x.T) / 2 for x in sides))
    if frames:
        left, right = ((torch.ones(n, dtype=torch.float64), torch.randn(n, n) / n**0.5) for n in (out, inp))
        pair.with_eigenframe(left, right)
    return pair


def _measured(job: Callable[[], object]) -> tuple[float, int]:
    """CPU seconds, and the peak beyond what was held before."""
    gc.collect()
    _reset_peak()
    before = _peak()
    return cpu_seconds(job), _peak() - before


def curvature(estimator: Estimator, work: str, target: float, count: int) -> list[Large]:
    """An estimate beside a plain epoch over the same images."""
    model, (x, y) = network(), images(count)
    plain_epoch(model, x[:BATCH], y[:BATCH], BATCH)
    reference = min(cpu_seconds(lambda: plain_epoch(model, x, y, BATCH)) for _ in range(2))
    job = partial(posterity.estimate, model, (x, y), estimator, batch_size=BATCH, progress=False)
    seconds, added = _measured(job)
    detail = f"{count} images at {SIDE} px, batch {BATCH}"
    return [Large(work, detail, seconds / reference, "plain epochs", target, seconds, reference, added)]


def prior_file() -> list[Large]:
    """A prior in memory and on disk, and the time to save and to load it."""
    prior = stand_in(network(), frames=False)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "prior.safetensors"
        saving, while_saving = _measured(lambda: prior.save(path))
        size = path.stat().st_size
        held = prior.nbytes
        del prior
        loading, while_loading = _measured(lambda: posterity.load(path))
    both = saving + loading
    return [
        Large("prior in memory", "float32 factors and means", held / GIB, "GiB", 0.8, both, None, 0),
        Large("prior on disk", "lower triangles", size / GIB, "GiB", 0.5, both, None, 0),
        Large("save + load", "", both, "CPU s", 8.0, both, None, max(while_saving, while_loading - held)),
    ]


def frames(side: int) -> list[Large]:
    """Eigenvectors of all factors, from the time of one factor of every size: set-up that `keep_frames` does once."""
    with torch.device("meta"):
        shapes = [block.shape for block in find_blocks(frozen_norms(resnet50(stride_in_1x1=True))).values()]
    sides = [n for shape in shapes for n in shape]
    total = 0.0
    for n in sorted(set(sides)):
        if n > side:
            total = float("nan")
            break
        x = torch.randn(n, n)
        x = x @ x.T / n
        total += sides.count(n) * cpu_seconds(lambda x=x: eigenvectors((x + x.T) / 2))  # type: ignore[misc]
    return [Large("frames", "eigenvectors of all factors, once", total, "CPU s", None, total, None, 0)]


def draws(count: int) -> list[Large]:
    """A draw of all weights, sampled predictions and draws of the linear network, after the frames are there."""
    model, (x, _) = network(), images(count)
    prior = stand_in(model, frames=True)
    started = time.process_time()
    spreads = {name: prior.spread(name, torch.float32) for name in prior.blocks}
    set_up = time.process_time() - started

    def draw() -> None:
        for spread in spreads.values():
            spread.draw(1, None)

    draw()
    one, added = _measured(draw)
    del spreads
    with torch.no_grad():
        model(x)
        forward = min(cpu_seconds(lambda: model(x)) for _ in range(2))
    predict = partial(posterity.predict, model, prior, x, method="sampled")
    few, many = (_measured(lambda n=n: predict(samples=n)) for n in (1, 3))  # type: ignore[misc]
    each = (many[0] - few[0]) / 2
    inputs = input_batches(x, count, x.device)
    with torch.no_grad():
        first, second = (_measured(lambda n=n: linear_draws(model, prior, inputs, n, None)) for n in (1, 3))  # type: ignore[misc]
    derivative = (second[0] - first[0]) / 2
    by_image = DRAWS / 2 * derivative / forward
    about = f"{count} images at {SIDE} px"
    return [
        Large("draw", f"all weights, after {set_up:.1f} s of set-up", one, "CPU s", 3.0, one, None, added),
        Large("sampled", f"100 draws × {about}, from 2", 100 * each / 60, "CPU minutes", 6.0, each, forward, many[1]),
        Large(
            "jvp",
            f"{DRAWS} draws, {DRAWS // 2} derivatives, {about}",
            by_image,
            "forwards an image",
            60.0,
            derivative,
            forward,
            second[1],
        ),
    ]


def derivatives(count: int) -> list[Large]:
    """Draws of the linear network for many images: what a draw of the weights costs is shared by all of them."""
    model, (x, _) = network(), images(count)
    prior = stand_in(model, frames=True)
    inputs = input_batches(x, 20, x.device)
    with torch.no_grad():
        forward = cpu_seconds(lambda: [batch.outputs(model) for batch in inputs])
        first, second = (_measured(lambda n=n: linear_draws(model, prior, inputs, n, None)) for n in (1, 2))  # type: ignore[misc]
    derivative = second[0] - first[0]
    by_image = DRAWS / 2 * derivative / forward
    detail = f"{DRAWS} draws, {DRAWS // 2} derivatives, {count} images at {SIDE} px"
    return [Large("jvp, many images", detail, by_image, "forwards an image", 60.0, derivative, forward, second[1])]


def head(count: int) -> list[Large]:
    """The exact posterior of a new head, its scales by leave-one-out, beside one forward pass over its images."""
    model, (x, _) = network(), images(count)
    model.fc = nn.Linear(2048, 10)
    y = torch.arange(count) % 10
    inputs = input_batches(x, 20, x.device)

    def forward() -> None:
        with torch.no_grad():
            for batch in inputs:
                batch.outputs(model)

    forward()
    reference = min(cpu_seconds(forward) for _ in range(2))
    job = partial(posterity.posterior, model, (x, y), blocks=["fc"], batch_size=20, progress=False)
    seconds, added = _measured(job)
    detail = f"{count} images at {SIDE} px, 10 classes"
    return [Large("exact head", detail, seconds / reference, "forwards an image", 1.2, seconds, reference, added)]


def imagenet(side: int, estimator: str, target: float) -> list[Large]:
    """The prior of a thousand images by two processes, whole: CPU time and peak of the slower one, and its file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "prior.safetensors"
        return imagenet_rows(_imagenet(path, 1000, side, estimator), path, side, estimator, target)


def imagenet_rows(said: str, path: Path, side: int, estimator: str, target: float) -> list[Large]:
    """What the processes said of themselves, and what the file takes in a process of its own: to load, and to save again."""
    seconds, peak = _slower(said)
    code = (
        "import sys, time, posterity as pt; from pathlib import Path; c = time.process_time; "
        "a = c(); prior = pt.load(sys.argv[1]); b = c(); prior.save(sys.argv[2]); print(b - a, c() - b, len(prior.blocks))"
    )
    with tempfile.TemporaryDirectory() as folder:
        again = Path(folder) / "again.safetensors"
        run = [sys.executable, "-c", code, str(path), str(again)]
        loading, saving, blocks = subprocess.run(run, capture_output=True, text=True, check=True).stdout.split()
        same = again.read_bytes() == path.read_bytes()
    size = path.stat().st_size
    detail = f"1,000 images at {side} px, two processes by torchrun; {peak:.1f} GiB a process"
    about = f"{blocks} blocks, read by a new process and written {'to the same bytes' if same else 'otherwise'}"
    both, parts = float(loading) + float(saving), f"{float(loading):.1f} + {float(saving):.1f}"
    return [
        Large(f"prior, {estimator}", detail, seconds / 60, "CPU minutes a process", target, seconds, None, 0),
        Large(f"prior, {estimator}, on disk", about, size / GIB, "GiB", 0.5, both, None, 0),
        Large(f"prior, {estimator}, load + save", parts, both, "CPU s", 8.0, both, None, 0),
    ]


def imagenet_from_few(counts: tuple[int, int], side: int, estimator: str, target: float) -> list[Large]:
    """The same from what images more take than fewer."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for count in counts:
            found.append(_slower(_imagenet(Path(folder) / f"{count}.safetensors", count, side, estimator)))
    (few, _), (many, peak) = found
    each = (many - few) / (counts[1] - counts[0])
    whole = few + each * (1000 - counts[0])
    detail = f"1,000 images at {side} px, two processes by torchrun, from {counts[0]} and {counts[1]}; {peak:.1f} GiB a process"
    return [Large(f"prior, {estimator}", detail, whole / 60, "CPU minutes a process", target, whole, None, 0)]


def _imagenet(path: Path, count: int, side: int, estimator: str) -> str:
    options = [str(path), f"--count={count}", f"--size={side}", f"--estimator={estimator}"]
    run = ["-m", "torch.distributed.run", "--nproc-per-node=2", "-m", "posterity_studies.shared.imagenet_prior"]
    return subprocess.run([sys.executable, *run, *options], capture_output=True, text=True, check=True).stdout


def _slower(said: str) -> tuple[float, float]:
    """CPU seconds and GiB of the process that took more of each."""
    found = re.findall(r"([\d.]+) CPU seconds and ([\d.]+) GiB", said)
    seconds, peak = (max(map(float, column)) for column in zip(*found, strict=True))
    return seconds, peak


def steps(part: str, every: int | None, work: str, batch: int) -> list[Large]:
    """A training step with a learned prior beside one without: forward, backward, Adam."""
    model, (x, y) = network(), images(batch)
    if part:
        with torch.no_grad():
            for stage in range(1, 4):
                x = model.get_submodule(f"layer{stage}")(model.stem(x) if stage == 1 else x)
        for name, p in model.named_parameters():
            p.requires_grad_(p.requires_grad and name.startswith((part, "fc")))

    def forward() -> Tensor:
        return model.head(model.after_stage(x, 3)) if part else model(x)

    trained = [p for p in model.parameters() if p.requires_grad]
    penalty = PriorPenalty(stand_in(model, frames=False), model, every)
    optimiser = torch.optim.Adam(trained, lr=1e-5)

    def step(prior: bool) -> None:
        optimiser.zero_grad()
        cross_entropy(forward(), y).backward()
        if prior:
            penalty.pull(penalty.forces()[0], 1e-6)
        optimiser.step()

    step(True)
    step(False)
    turns = penalty.every
    _reset_peak()
    before = _peak()
    # In turn, so that both meet the same machine.
    pairs = [(cpu_seconds(lambda: step(False)), cpu_seconds(lambda: step(True))) for _ in range(turns)]
    plain, ours = (sum(column) / turns for column in zip(*pairs, strict=True))
    detail = f"batch {batch} at {SIDE} px, each block every {turns} steps"
    return [Large(work, detail, ours / plain, "plain steps", 1.3, ours, plain, _peak() - before)]


def cases(*, quick: bool = False) -> list[Case]:
    """All lines of the table."""
    count = BATCH if quick else 4 * BATCH
    found = [
        Case("large kfac", partial(curvature, KFAC(), "kfac", 2.2, count)),
        Case("large kfoc", partial(curvature, KFOC(), "kfoc", 5.0, count)),
        Case("large file", prior_file),
        Case("large draws", partial(draws, 20)),
        Case("large head", partial(head, 20 if quick else 100)),
        Case("large many draws", partial(derivatives, 20 if quick else 100)),
        Case("large step all", partial(steps, "", None, "step, all blocks", 2 * BATCH)),
        Case("large step layer4", partial(steps, "layer4", 16, "step, layer4 on cached features", 4 * BATCH)),
    ]
    # A minute of eigendecompositions, and networks at full size.
    slow = [
        Case("large frames", partial(frames, 10**6)),
        Case("large imagenet kfac", partial(imagenet, 224, "kfac", 12.0)),
        Case("large imagenet kfoc", partial(imagenet_from_few, (16, 48), 224, "kfoc", 25.0)),
    ]
    return found if quick else [*found, *slow]
