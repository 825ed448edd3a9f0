"""`posterity learn`, `posterity adapt` and `posterity prior learn`: data in, a folder out."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

import torch
import typer
from torch import nn

import posterity as pt
from posterity.cli import options as opt
from posterity.cli.cost import Cost, cost, duration
from posterity.cli.networks import NETWORKS, build, default_for
from posterity.cli.reading import Examples, Look, Recipe, Wish, look, read
from posterity.cli.saved import Manifest, Opened, check_new, open_folder, write_fit, write_prior
from posterity.cli.telling import command_line, note, tell, write_page
from posterity.errors import BadData, UnknownNetwork
from posterity.pages import fit_page

Epochs = Annotated[int | None, typer.Option(min=1, help="At most so many; by default until it no longer helps.")]
Lr = Annotated[float | None, typer.Option(min=0.0, help="The learning rate to begin with.")]
BatchSize = Annotated[int, typer.Option(min=1, help="Examples at a time.")]
Head = Annotated[
    Literal["keep", "new"] | None,
    typer.Option(help="Hand the prior's last layer down or begin it anew; by default the names of the classes decide."),
]
Prior = Annotated[
    Path | None, typer.Option(help="A prior to begin with: a folder, or a .safetensors file with --network.")
]


def learn(
    data: opt.Data,
    out: opt.Out,
    network: opt.Network = None,
    prior: Prior = None,
    target: opt.Target = None,
    columns: opt.Columns = None,
    task: opt.Task = None,
    missing: opt.Missing = "refuse",
    size: opt.Size = None,
    channels: opt.Channels = None,
    part: opt.Part = "train",
    head: Head = None,
    epochs: Epochs = None,
    lr: Lr = None,
    batch_size: BatchSize = 256,
    seed: opt.Seed = 0,
    overwrite: opt.Overwrite = False,
    dry_run: opt.DryRun = False,
    page: opt.Page = None,
    as_json: opt.Json = False,
    quiet: opt.Quiet = False,
) -> None:
    """Train a network on data and write its posterior: a folder that predict, evaluate, certify and adapt use."""
    wish = opt.wish(target, columns, task, missing, size, channels, part)
    given = None if prior is None else _given(prior, network)
    run = Run(data, wish, network, given, out, seed, head, epochs, overwrite, dry_run, as_json, quiet)
    if run.stops():
        return
    examples = run.examples()
    model = run.network(examples)
    training = {key: value for key, value in (("epochs", epochs), ("lr", lr)) if value is not None}

    def fitting(generator: torch.Generator) -> pt.Fit:
        return pt.learn(
            model,
            examples.pair,
            None if given is None else given.prior,
            _likelihood(examples),
            classes=examples.classes or None,
            head=head,
            batch_size=batch_size,
            generator=generator,
            progress=not quiet,
            training=training,
        )

    run.finish("learn", examples, fitting, page)


def adapt(
    prior: Annotated[
        Path, typer.Argument(help="A prior: a folder, or a .safetensors file with --network.", show_default=False)
    ],
    data: opt.Data,
    out: opt.Out,
    network: opt.Network = None,
    target: opt.Target = None,
    missing: opt.Missing = "refuse",
    part: opt.Part = "train",
    head: Head = None,
    seed: opt.Seed = 0,
    overwrite: opt.Overwrite = False,
    dry_run: opt.DryRun = False,
    page: opt.Page = None,
    as_json: opt.Json = False,
    quiet: opt.Quiet = False,
) -> None:
    """Adapt a prior to few examples, without training: seconds for a hundred of them."""
    given = _given(prior, network)
    wish = opt.wish(target, None, None, missing, part=part)
    run = Run(data, wish, network, given, out, seed, head, None, overwrite, dry_run, as_json, quiet, trains=False)
    if run.stops():
        return
    examples = run.examples()
    model = run.network(examples)

    def fitting(generator: torch.Generator) -> pt.Fit:
        return pt.adapt(
            model,
            given.prior,
            examples.pair,
            _likelihood(examples),
            classes=examples.classes or None,
            head=head,
            generator=generator,
            progress=not quiet,
        )

    run.finish("adapt", examples, fitting, page)


def prior_learn(
    data: opt.Data,
    out: opt.Out,
    network: opt.Network = None,
    target: opt.Target = None,
    columns: opt.Columns = None,
    task: opt.Task = None,
    missing: opt.Missing = "refuse",
    size: opt.Size = None,
    channels: opt.Channels = None,
    part: opt.Part = "train",
    epochs: Epochs = None,
    lr: Lr = None,
    batch_size: BatchSize = 256,
    seed: opt.Seed = 0,
    overwrite: opt.Overwrite = False,
    dry_run: opt.DryRun = False,
    page: opt.Page = None,
    as_json: opt.Json = False,
    quiet: opt.Quiet = False,
) -> None:
    """Learn from data and write the posterior as a prior to share: no example is in the folder."""
    wish = opt.wish(target, columns, task, missing, size, channels, part)
    run = Run(data, wish, network, None, out, seed, None, epochs, overwrite, dry_run, as_json, quiet, kind="prior")
    if run.stops():
        return
    examples = run.examples()
    model = run.network(examples)
    training = {key: value for key, value in (("epochs", epochs), ("lr", lr)) if value is not None}

    def fitting(generator: torch.Generator) -> pt.Fit:
        return pt.learn(
            model,
            examples.pair,
            likelihood=_likelihood(examples),
            classes=examples.classes or None,
            batch_size=batch_size,
            generator=generator,
            progress=not quiet,
            training=training,
        )

    run.finish("learn", examples, fitting, page)


class Given:
    """A prior that was given: the Gaussian, and, where it came as a folder, how its data was read."""

    def __init__(self, prior: pt.Gaussian, opened: Opened | None) -> None:
        self.prior, self.opened = prior, opened

    @property
    def recipe(self) -> Recipe | None:
        """How the source's data was read: data for a prior from a folder is read alike."""
        return None if self.opened is None else self.opened.manifest.recipe


def _given(path: Path, network: str | None) -> Given:
    if path.is_dir():
        opened = open_folder(path)
        if opened.manifest.network not in NETWORKS and network is None:
            name = opened.manifest.network
            raise UnknownNetwork(f"the network of {path} is {name}, which is code: say --network {name} to run it.")
        return Given(opened.handed_down, opened)
    if network is None:
        raise UnknownNetwork(
            f"{path} is a prior alone and does not say which network it is for: name it with --network."
        )
    return Given(pt.load(path), None)


class Run:
    """What learning and adapting have in common: looking, estimating, reading, fitting, writing, telling."""

    def __init__(
        self,
        data: str,
        wish: Wish,
        network: str | None,
        given: Given | None,
        out: Path,
        seed: int,
        head: str | None,
        epochs: int | None,
        overwrite: bool,
        dry_run: bool,
        as_json: bool,
        quiet: bool,
        trains: bool = True,
        kind: Literal["fit", "prior"] = "fit",
    ) -> None:
        self.data, self.wish, self.given, self.out, self.seed = data, wish, given, out, seed
        self.head, self.epochs, self.dry_run, self.as_json, self.quiet = head, epochs, dry_run, as_json, quiet
        self.trains, self.kind, self.chosen = trains, kind, network
        self.began = time.monotonic()
        if not dry_run:
            check_new(out, overwrite)

    @property
    def recipe(self) -> Recipe | None:
        """How data has to be read for the prior that was given."""
        return None if self.given is None else self.given.recipe

    def name(self, shape: tuple[int, ...]) -> str:
        """The network's name: as asked, else the prior's, else what suits the inputs."""
        if self.chosen is not None:
            return self.chosen
        opened = None if self.given is None else self.given.opened
        return default_for(shape) if opened is None else opened.manifest.network

    def stops(self) -> bool:
        """Whether only an estimate was asked for; it is told then, before any example is read."""
        if not self.dry_run:
            return False
        wish = self.wish if self.recipe is None else _as_wish(self.wish, self.recipe)
        found = look(self.data, wish)
        outputs = len(found.classes) if found.classes else self._outputs()
        torch.manual_seed(self.seed)
        model = build(self.name(found.shape), found.shape, outputs)
        estimate = self.cost(model, found, outputs)
        rows = [("data", _told(found)), *estimate.rows()]
        if found.classes is None:
            rows.append(("assumed", f"{outputs} outputs: labels are not read for an estimate"))
        result = {"dry_run": True, "examples": found.count, "shape": found.shape, "outputs": outputs}
        tell(result | estimate.to_json(), self.as_json, f"What it would take to learn from {self.data}", rows)
        return True

    def _outputs(self) -> int:
        if self.given is not None and self.given.opened is not None:
            return self.given.opened.manifest.outputs
        return 1 if self.wish.task == "regression" else 10

    def cost(self, model: nn.Module, found: Look, outputs: int) -> Cost:
        """Memory and time, by shapes and one small batch."""
        new_head = self.head == "new" or (
            self.head is None and self.given is not None and found.classes != self.given.prior.card.classes
        )
        return cost(
            model,
            found.shape,
            found.count,
            outputs,
            prior=self.given is not None,
            new_head=new_head,
            trains=self.trains,
            epochs=self.epochs,
        )

    def examples(self) -> Examples:
        """All examples, read as the prior's data was."""
        note(f"reading {self.data}", self.quiet)
        recipe = self.recipe
        if recipe is not None:
            wish = _as_wish(self.wish, recipe)
            found = read(self.data, wish, recipe)
        else:
            found = read(self.data, self.wish)
        for line in found.notes:
            note(line, self.quiet)
        if found.classes and len(found.classes) < 2:
            raise BadData(f'{self.data} has one class, "{found.classes[0]}": at least two are needed.')
        return found

    def network(self, examples: Examples) -> nn.Module:
        """A fresh network for the examples."""
        torch.manual_seed(self.seed)
        shape = tuple(examples.x.shape[1:])
        return build(self.name(shape), shape, examples.outputs)

    def finish(
        self, verb: str, examples: Examples, fitting: Callable[[torch.Generator], pt.Fit], page: Path | None
    ) -> None:
        """Fit, write the folder, tell what happened."""
        note(f"{verb}ing from {len(examples.x):,} examples with {self.name(examples.recipe.shape)}", self.quiet)
        fit = fitting(torch.Generator().manual_seed(self.seed))
        exact = fit.function is not None
        manifest = Manifest(
            kind=self.kind,
            network=self.name(examples.recipe.shape),
            recipe=examples.recipe,
            classes=examples.classes,
            outputs=examples.outputs,
            count=len(examples.x),
            verb=verb,
            options={"seed": self.seed, "head": self.head},
            noise=getattr(fit.likelihood, "precision", None),
            calibration=(fit.calibration.tau, fit.calibration.temperature),
            in_function_space=exact and self.kind == "fit",
        )
        if self.kind == "fit":
            write_fit(self.out, manifest, fit, None if self.given is None else self.given.prior, examples.pair)
        else:
            write_prior(self.out, manifest, fit)
        seconds = time.monotonic() - self.began
        story = _story(self, examples, fit, seconds)
        title = f"{'A prior from' if self.kind == 'prior' else 'Learned from'} {self.data}"
        # Told before the page is drawn: what is written is written, whatever is missing for pictures.
        result = {
            "out": str(self.out),
            "seconds": seconds,
            "examples": len(examples.x),
            "classes": list(examples.classes),
        }
        result |= {"exact": exact, "task": examples.recipe.task, "network": manifest.network, "seed": self.seed}
        tell(result, self.as_json, title, story.items(), _next(self, exact))
        gaussians = {"prior": fit.prior, "posterior": fit.posterior}
        write_page(page, lambda: fit_page(title, story, gaussians, fit.history, None, command_line()))


def _as_wish(wish: Wish, recipe: Recipe) -> Wish:
    picture = len(recipe.shape) == 3
    return Wish(
        wish.target or recipe.target,
        recipe.columns,
        recipe.task,
        wish.missing,
        recipe.shape[-1] if picture else None,
        recipe.shape[0] if picture else None,
        wish.part,
    )


def _likelihood(examples: Examples) -> pt.Categorical | pt.GaussianNoise:
    return pt.Categorical() if examples.classes else pt.GaussianNoise()


def _told(found: Look) -> str:
    classes = f", {len(found.classes)} classes" if found.classes else ""
    return f"{found.count:,} examples of {'×'.join(map(str, found.shape))}{classes}"


def _story(run: Run, examples: Examples, fit: pt.Fit, seconds: float) -> dict[str, str]:
    classes = (
        f"{len(examples.classes)} classes: {', '.join(examples.classes[:12])}" if examples.classes else "regression"
    )
    story = {
        "examples": f"{len(examples.x):,} of {'×'.join(map(str, examples.x.shape[1:]))}, {classes}",
        "network": f"{run.name(examples.recipe.shape)}, {sum(p.numel() for p in fit.model.parameters()):,} parameters",
        "posterior": "exact, in function space"
        if fit.function is not None
        else "structured, around the trained network",
        "took": duration(seconds),
        "written to": str(run.out),
    }
    if fit.history is not None and fit.history.epochs:
        last = fit.history.final
        story["training"] = f"{len(fit.history.epochs)} epochs, NLL {last.nll:.3f}, accuracy {last.accuracy:.3f}"
    if fit.choice is not None:
        story["chosen by leave-one-out"] = f"{fit.choice.options} strengths and widths compared"
    return story


def _next(run: Run, exact: bool) -> list[str]:
    if run.kind == "prior":
        return [f"Next: posterity adapt {run.out} FEW-EXAMPLES --out FIT   (no training example is in {run.out})"]
    kept = [
        f"{run.out}/examples.safetensors holds the training examples: predictions need them. To share, take prior or posterior."
    ]
    return [*(kept if exact else []), f"Next: posterity predict {run.out} NEW-DATA --out predictions.csv"]
