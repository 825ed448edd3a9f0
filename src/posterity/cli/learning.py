"""`posterity learn`, `posterity adapt` and `posterity prior learn`: data in, one file out."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import typer
from torch import nn

import posterity as pt
from posterity.cli import options as opt
from posterity.cli.networks import build, default_for
from posterity.cli.reading import Examples, Look, ReadOptions, Recipe, look, read
from posterity.cli.saved import Manifest, carrying, check_new, open_saved, write_fit
from posterity.cli.telling import command_line, note, tell, write_page
from posterity.errors import BadData
from posterity.pages import fit_page
from posterity.workflow.cost import cost, duration

PriorArgument = Annotated[
    Path, typer.Argument(help="A prior or a fit; with --network where its file names none.", show_default=False)
]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a user asks of learning: each field is an argument or an option of the commands below."""

    data: opt.Data
    out: opt.Out
    network: opt.Network = None
    prior: Annotated[
        Path | None, typer.Option(help="A prior or a fit to begin with; with --network where its file names none.")
    ] = None
    target: opt.Target = None
    columns: opt.Columns = None
    text: opt.Text = None
    task: opt.Task = None
    missing: opt.Missing = None
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
    def reading(self) -> ReadOptions:
        """What is asked of the data."""
        return opt.reading(
            self.target, self.columns, self.text, self.task, self.missing, self.size, self.channels, self.part
        )


@opt.command(Asked)
def learn(asked: Asked) -> None:
    """Train a network on data and write its posterior: one file that predict, evaluate, certify and adapt use."""
    Run("learn", asked).go()


@opt.command(
    Asked,
    without=("columns", "text", "task", "size", "channels", "epochs", "lr", "batch_size"),
    first={"prior": PriorArgument},
)
def adapt(asked: Asked) -> None:
    """Adapt a prior to few examples, without training: seconds for a hundred of them."""
    Run("adapt", asked).go()


@opt.command(Asked, without=("prior", "head"))
def prior_learn(asked: Asked) -> None:
    """Learn from data and write the posterior as a prior to share: no example is in the file."""
    Run("learn", asked, kind="prior").go()


class Run:
    """What learning and adapting have in common: looking, estimating, reading, fitting, writing, telling."""

    def __init__(self, verb: Literal["learn", "adapt"], asked: Asked, kind: Literal["fit", "prior"] = "fit") -> None:
        self.verb, self.asked, self.kind = verb, asked, kind
        self.given = None if asked.prior is None else open_saved(asked.prior)
        self.prior = None if self.given is None else self.given.handed_down
        self.began = time.monotonic()
        if self.given is not None:
            self.given.name(asked.network)  # a prior that names no network is refused before data is read
        if not asked.dry_run:
            check_new(asked.out, asked.overwrite)

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
        if self.verb == "adapt":
            assert self.prior is not None
            return pt.adapt(model, self.prior, examples.pair, likelihood, **options)
        options |= {"batch_size": self.asked.batch_size, "training": self.training}
        # What is handed down as a prior is the network's: nothing else need be fitted for it.
        options["candidates"] = "all" if examples.recipe.columns and self.kind == "fit" else "network"
        return pt.learn(model, examples.pair, self.prior, likelihood, **options)

    @property
    def training(self) -> dict[str, Any]:
        """Options of training, where there are any."""
        given = {"epochs": self.asked.epochs, "lr": self.asked.lr}
        return {name: value for name, value in given.items() if value is not None}

    @property
    def recipe(self) -> Recipe | None:
        """How data has to be read for the prior that was given."""
        return None if self.given is None or self.given.manifest is None else self.given.manifest.recipe

    def name(self, shape: tuple[int, ...]) -> str:
        """The network's name: as asked, else the prior's, else what suits the inputs."""
        if self.given is not None:
            return self.given.name(self.asked.network)
        return self.asked.network or default_for(shape)

    def estimate(self) -> None:
        """How it would be learned and what it would take, told before any example is read."""
        found = look(self.asked.data, self.asked.reading, self.recipe)
        # Tables are read as a whole, labels too: a target without classes is a number.
        regression = (found.kind == "table" and not found.classes) or self.task == "regression"
        outputs = len(found.classes) if found.classes else self._outputs(regression)
        torch.manual_seed(self.asked.seed)
        model = build(self.name(found.shape), found.shape, outputs)
        estimate = cost(
            model,
            found.shape,
            found.count,
            outputs,
            pt.GaussianNoise() if regression else pt.Categorical(),
            verb=self.verb,
            prior=self.prior,
            classes=found.classes,
            head=self.asked.head,
            training=self.training,
            candidates="all" if found.kind == "table" and self.kind == "fit" else "network",
        )
        rows = [("data", _told(found)), *estimate.rows()]
        if not found.classes and not regression:
            rows.append(("assumed", f"{outputs} outputs: labels are not read for an estimate"))
        result = {"dry_run": True, "examples": found.count, "shape": found.shape, "outputs": outputs}
        title = f"What it would take to learn from {self.asked.data}"
        tell(result | estimate.to_json(), self.asked.as_json, title, rows)

    @property
    def task(self) -> str | None:
        """What the target is, as far as that is known before it is read."""
        return self.asked.task or (None if self.recipe is None else self.recipe.task)

    def _outputs(self, regression: bool) -> int:
        if self.given is not None and self.given.manifest is not None:
            return self.given.manifest.outputs
        return 1 if regression else 10

    def examples(self) -> Examples:
        """All examples, read as the prior's data was."""
        note(f"reading {self.asked.data}", self.asked.quiet)
        # A head that is kept has its outputs in the order of the card's names, whichever of them the data has.
        known = self.prior.card.classes if self.prior is not None and self.asked.head == "keep" else ()
        found = read(self.asked.data, self.asked.reading, self.recipe, known)
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
        """Fit, write the file, tell what happened."""
        towards = "to" if self.verb == "adapt" else "from"
        network = self.name(examples.recipe.shape)
        note(f"{self.verb}ing {towards} {len(examples.x):,} examples with {network}", self.asked.quiet)
        fit = self.fit(examples, model)
        manifest = Manifest(examples.recipe, network, examples.outputs, examples.classes, self.verb, self.asked.head)
        posterior = carrying(fit.posterior, manifest, examples, self.prior)
        if self.kind == "fit":
            write_fit(self.asked.out, manifest, replace(fit, posterior=posterior), self.prior)
        else:
            posterior.save(self.asked.out)
        seconds = time.monotonic() - self.began
        story = _story(self, examples, fit, seconds)
        made = "A prior from" if self.kind == "prior" else {"adapt": "Adapted to"}.get(self.verb, "Learned from")
        title = f"{made} {self.asked.data}"
        # Told before the page is drawn: what is written is written, whatever is missing for pictures.
        result = {
            "out": str(self.asked.out),
            "seconds": seconds,
            "examples": len(examples.x),
            "classes": list(examples.classes),
        }
        result |= {"task": examples.recipe.task, "network": network, "seed": self.asked.seed}
        result |= {"plan": {"ways": list(fit.plan.ways), "reasons": list(fit.plan.reasons)}}
        tell(result, self.asked.as_json, title, story.items(), _next(self, fit))
        gaussians = {"prior": fit.prior, "posterior": fit.posterior}
        write_page(self.asked.page, lambda: fit_page(title, story, gaussians, fit.history, None, command_line()))


def _told(found: Look) -> str:
    classes = f", {len(found.classes)} classes" if found.classes else ""
    return f"{found.count:,} examples of {'×'.join(map(str, found.shape))}{classes}"


def _story(run: Run, examples: Examples, fit: pt.Fit, seconds: float) -> dict[str, str]:
    classes = f"{len(examples.classes)} classes: {', '.join(examples.classes)}" if examples.classes else "regression"
    story = {
        "examples": f"{len(examples.x):,} of {'×'.join(map(str, examples.x.shape[1:]))}, {classes}",
        **dict(examples.recipe.rows()),
        "network": f"{run.name(examples.recipe.shape)}, {sum(p.numel() for p in fit.model.parameters()):,} parameters",
        "plan": " + ".join(fit.plan.ways),
        "because": "; ".join(fit.plan.reasons),
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


def _next(run: Run, fit: pt.Fit) -> list[str]:
    out = run.asked.out
    if run.kind == "prior":
        return [f"Next: posterity adapt {out} FEW-EXAMPLES --out FIT   (no training example is in {out})"]
    kept = f"{out} holds the training examples: predictions need them. To share, take a prior (posterity prior learn)."
    lines = [] if fit.examples is None else [kept]
    return [*lines, f"Next: posterity predict {out} NEW-DATA --out predictions.csv"]
