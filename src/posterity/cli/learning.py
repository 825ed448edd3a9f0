"""`posterity learn`, `posterity adapt` and `posterity prior learn`: data in, a folder out."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

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

PriorArgument = Annotated[
    Path, typer.Argument(help="A prior: a folder, or a .safetensors file with --network.", show_default=False)
]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a user asks of learning: each field is an argument or an option of the commands below."""

    data: opt.Data
    out: opt.Out
    network: opt.Network = None
    prior: Annotated[
        Path | None, typer.Option(help="A prior to begin with: a folder, or a .safetensors file with --network.")
    ] = None
    target: opt.Target = None
    columns: opt.Columns = None
    task: opt.Task = None
    missing: opt.Missing = "refuse"
    size: opt.Size = None
    channels: opt.Channels = None
    part: opt.Part = "train"
    head: Annotated[
        Literal["keep", "new"] | None,
        typer.Option(
            help="Hand the prior's last layer down or begin it anew; by default the names of the classes decide."
        ),
    ] = None
    epochs: Annotated[int | None, typer.Option(min=1, help="At most so many; by default until it no longer helps.")] = (
        None
    )
    lr: Annotated[float | None, typer.Option(min=0.0, help="The learning rate to begin with.")] = None
    batch_size: Annotated[int, typer.Option(min=1, help="Examples at a time.")] = 256
    seed: opt.Seed = 0
    overwrite: opt.Overwrite = False
    dry_run: opt.DryRun = False
    page: opt.Page = None
    as_json: opt.Json = False
    quiet: opt.Quiet = False

    @property
    def wish(self) -> Wish:
        """What is asked of the data."""
        return opt.wish(self.target, self.columns, self.task, self.missing, self.size, self.channels, self.part)


@opt.command(Asked)
def learn(asked: Asked) -> None:
    """Train a network on data and write its posterior: a folder that predict, evaluate, certify and adapt use."""
    Run("learn", asked).go()


@opt.command(
    Asked, without=("columns", "task", "size", "channels", "epochs", "lr", "batch_size"), first={"prior": PriorArgument}
)
def adapt(asked: Asked) -> None:
    """Adapt a prior to few examples, without training: seconds for a hundred of them."""
    Run("adapt", asked).go()


@opt.command(Asked, without=("prior", "head"))
def prior_learn(asked: Asked) -> None:
    """Learn from data and write the posterior as a prior to share: no example is in the folder."""
    Run("learn", asked, kind="prior").go()


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

    def __init__(self, verb: Literal["learn", "adapt"], asked: Asked, kind: Literal["fit", "prior"] = "fit") -> None:
        self.verb, self.asked, self.kind = verb, asked, kind
        self.given = None if asked.prior is None else _given(asked.prior, asked.network)
        self.began = time.monotonic()
        if not asked.dry_run:
            check_new(asked.out, asked.overwrite, "--overwrite replaces it")

    def go(self) -> None:
        """The whole command; where only an estimate was asked for, that alone."""
        if self.asked.dry_run:
            self.estimate()
            return
        examples = self.examples()
        self.finish(examples, self.network(examples))

    def fit(self, examples: Examples, model: nn.Module) -> pt.Fit:
        """The verb itself."""
        options: dict[str, Any] = {
            "classes": examples.classes or None,
            "head": self.asked.head,
            "generator": torch.Generator().manual_seed(self.asked.seed),
            "progress": not self.asked.quiet,
        }
        likelihood = pt.Categorical() if examples.classes else pt.GaussianNoise()
        prior = None if self.given is None else self.given.prior
        if self.verb == "adapt":
            assert prior is not None
            return pt.adapt(model, prior, examples.pair, likelihood, **options)
        given = {"epochs": self.asked.epochs, "lr": self.asked.lr}
        training = {name: value for name, value in given.items() if value is not None}
        batch_size = self.asked.batch_size
        return pt.learn(model, examples.pair, prior, likelihood, batch_size=batch_size, training=training, **options)

    @property
    def recipe(self) -> Recipe | None:
        """How data has to be read for the prior that was given."""
        return None if self.given is None else self.given.recipe

    def name(self, shape: tuple[int, ...]) -> str:
        """The network's name: as asked, else the prior's, else what suits the inputs."""
        if self.asked.network is not None:
            return self.asked.network
        opened = None if self.given is None else self.given.opened
        return default_for(shape) if opened is None else opened.manifest.network

    def estimate(self) -> None:
        """What it would take, told before any example is read."""
        wish = self.asked.wish if self.recipe is None else _as_wish(self.asked.wish, self.recipe)
        found = look(self.asked.data, wish)
        outputs = len(found.classes) if found.classes else self._outputs()
        torch.manual_seed(self.asked.seed)
        model = build(self.name(found.shape), found.shape, outputs)
        estimate = self.cost(model, found, outputs)
        rows = [("data", _told(found)), *estimate.rows()]
        if found.classes is None:
            rows.append(("assumed", f"{outputs} outputs: labels are not read for an estimate"))
        result = {"dry_run": True, "examples": found.count, "shape": found.shape, "outputs": outputs}
        title = f"What it would take to learn from {self.asked.data}"
        tell(result | estimate.to_json(), self.asked.as_json, title, rows)

    def _outputs(self) -> int:
        if self.given is not None and self.given.opened is not None:
            return self.given.opened.manifest.outputs
        return 1 if self.asked.wish.task == "regression" else 10

    def cost(self, model: nn.Module, found: Look, outputs: int) -> Cost:
        """Memory and time, by shapes and one small batch."""
        new_head = self.asked.head == "new" or (
            self.asked.head is None and self.given is not None and found.classes != self.given.prior.card.classes
        )
        return cost(
            model,
            found.shape,
            found.count,
            outputs,
            prior=self.given is not None,
            new_head=new_head,
            trains=self.verb == "learn",
            epochs=self.asked.epochs,
        )

    def examples(self) -> Examples:
        """All examples, read as the prior's data was."""
        note(f"reading {self.asked.data}", self.asked.quiet)
        recipe = self.recipe
        if recipe is not None:
            wish = _as_wish(self.asked.wish, recipe)
            found = read(self.asked.data, wish, recipe)
        else:
            found = read(self.asked.data, self.asked.wish)
        for line in found.notes:
            note(line, self.asked.quiet)
        if found.classes and len(found.classes) < 2:
            raise BadData(f'{self.asked.data} has one class, "{found.classes[0]}": at least two are needed.')
        return found

    def network(self, examples: Examples) -> nn.Module:
        """A fresh network for the examples."""
        torch.manual_seed(self.asked.seed)
        shape = tuple(examples.x.shape[1:])
        return build(self.name(shape), shape, examples.outputs)

    def finish(self, examples: Examples, model: nn.Module) -> None:
        """Fit, write the folder, tell what happened."""
        verb = self.verb
        towards = "to" if verb == "adapt" else "from"
        network = self.name(examples.recipe.shape)
        note(f"{verb}ing {towards} {len(examples.x):,} examples with {network}", self.asked.quiet)
        fit = self.fit(examples, model)
        exact = fit.function is not None
        manifest = Manifest(
            kind=self.kind,
            network=network,
            recipe=examples.recipe,
            classes=examples.classes,
            outputs=examples.outputs,
            count=len(examples.x),
            verb=verb,
            options={"seed": self.asked.seed, "head": self.asked.head},
            noise=getattr(fit.likelihood, "precision", None),
            calibration=fit.calibration.numbers,
            in_function_space=exact and self.kind == "fit",
        )
        if self.kind == "fit":
            write_fit(self.asked.out, manifest, fit, None if self.given is None else self.given.prior, examples.pair)
        else:
            write_prior(self.asked.out, manifest, fit)
        seconds = time.monotonic() - self.began
        story = _story(self, examples, fit, seconds)
        made = "A prior from" if self.kind == "prior" else {"adapt": "Adapted to"}.get(verb, "Learned from")
        title = f"{made} {self.asked.data}"
        # Told before the page is drawn: what is written is written, whatever is missing for pictures.
        result = {
            "out": str(self.asked.out),
            "seconds": seconds,
            "examples": len(examples.x),
            "classes": list(examples.classes),
        }
        result |= {"exact": exact, "task": examples.recipe.task, "network": manifest.network, "seed": self.asked.seed}
        tell(result, self.asked.as_json, title, story.items(), _next(self, exact))
        gaussians = {"prior": fit.prior, "posterior": fit.posterior}
        write_page(self.asked.page, lambda: fit_page(title, story, gaussians, fit.history, None, command_line()))


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
        "written to": str(run.asked.out),
    }
    if fit.history is not None and fit.history.epochs:
        last = fit.history.final
        story["training"] = f"{len(fit.history.epochs)} epochs, NLL {last.nll:.3f}, accuracy {last.accuracy:.3f}"
    if fit.choice is not None and fit.choice.criterion == "fixed":
        story["strength"] = "set in advance: one example a class leaves none to choose by"
    elif fit.choice is not None:
        by, what = (
            ("the evidence", "strengths")
            if fit.choice.criterion == "evidence"
            else ("leave-one-out", "strengths and widths")
        )
        story[f"chosen by {by}"] = f"{fit.choice.options} {what} compared"
    return story


def _next(run: Run, exact: bool) -> list[str]:
    out = run.asked.out
    if run.kind == "prior":
        return [f"Next: posterity adapt {out} FEW-EXAMPLES --out FIT   (no training example is in {out})"]
    kept = f"{out}/examples.safetensors holds the training examples: predictions need them. To share, take prior or posterior."
    return [*([kept] if exact else []), f"Next: posterity predict {out} NEW-DATA --out predictions.csv"]
