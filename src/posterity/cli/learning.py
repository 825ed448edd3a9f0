"""`posterity learn`, `posterity adapt` and `posterity prior learn`: data in, one file out."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import typer
from torch import nn

import posterity as pt
from posterity.cli import options as opt
from posterity.cli.networks import HEAD, build, default_for, imported, spoken
from posterity.cli.output import command_line, note, report, write_page
from posterity.cli.reading import ReadOptions, TensorExamples, look, read
from posterity.cli.saved import Manifest, carrying, check_new, open_saved
from posterity.errors import BadData
from posterity.heads.views import FeatureNetwork
from posterity.pages import fit_page
from posterity.workflow.cost import cost, duration
from posterity.workflow.file import save_fit

PriorArgument = Annotated[
    Path, typer.Argument(help="A prior or a fit; with --network where its file names none.", show_default=False)
]


@dataclass(frozen=True, kw_only=True)
class LearnOptions:
    """What a user asks of learning: each field is an argument or an option of the commands below."""

    out: opt.Out
    data: opt.SomeData = None
    features: Annotated[
        str | None, typer.Option(help="Rows of features (.npy, or .npz with x and y): a head is fitted, no network.")
    ] = None
    labels: opt.Labels = None
    encoder: opt.Encoder = None
    words: Annotated[
        str | None,
        typer.Option(
            help="For a head: module:function that makes rows of texts. The names of the classes are a prior then."
        ),
    ] = None
    network: opt.Network = None
    prior: Annotated[
        Path | None, typer.Option(help="A prior or a fit to begin with; with --network where its file names none.")
    ] = None
    target: opt.Target = None
    columns: opt.Columns = None
    groups: opt.Groups = None
    text: opt.Text = None
    task: opt.Task = None
    missing: opt.Missing = None
    size: opt.Size = None
    channels: opt.Channels = None
    part: opt.Part = "train"
    head: Annotated[
        Literal["keep", "new"] | None,
        typer.Option(
            help="Hand the prior's last layer down or begin it from scratch; by default the names of the classes decide."
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
            self.target, self.columns, self.text, self.task, self.missing, self.size, self.channels, self.part, self.groups,
            self.labels, self.encoder, self.quiet,
        )  # fmt: skip

    @property
    def where(self) -> str:
        """The path of the inputs: of data, or of features."""
        if (self.data is None) == (self.features is None):
            raise BadData("say where the data is: a folder or file, or --features FILE with --labels FILE.")
        return self.data or str(self.features)


@opt.command(LearnOptions)
def learn(asked: LearnOptions) -> None:
    """Train a network on data and write its posterior: one file that predict, evaluate, certify and adapt use."""
    LearnCommand("learn", asked).go()


@opt.command(
    LearnOptions,
    without=("columns", "text", "task", "size", "channels", "epochs", "lr", "batch_size", "features", "words"),
    first={"prior": PriorArgument, "data": opt.Data},
)
def adapt(asked: LearnOptions) -> None:
    """Adapt a prior to few examples, without training: seconds for a hundred of them."""
    LearnCommand("adapt", asked).go()


@opt.command(
    LearnOptions, without=("prior", "head", "features", "labels", "encoder", "words"), first={"data": opt.Data}
)
def prior_learn(asked: LearnOptions) -> None:
    """Learn from data and write the posterior as a prior to share: no example is in the file."""
    LearnCommand("learn", asked, kind="prior").go()


def on_features(examples: TensorExamples, prior: Any = None, words: str | None = None) -> pt.Fit:
    """A head on rows of features; the names of the classes, or an earlier head, are its prior."""
    x, y = examples.pair
    if words is not None:
        prior = pt.words(imported(words), {name: spoken(name) for name in examples.classes})
    y = y if examples.classes else y.double()
    return pt.head(x, y, groups=examples.groups, prior=prior, classes=examples.classes or None)


class LearnCommand:
    """What learning and adapting have in common: an estimate, or reading, fitting, writing and printing."""

    def __init__(
        self, verb: Literal["learn", "adapt"], asked: LearnOptions, kind: Literal["fit", "prior"] = "fit"
    ) -> None:
        self.verb, self.asked, self.kind = verb, asked, kind
        self.given = None if asked.prior is None else open_saved(asked.prior)
        self.prior = None if self.given is None else self.given.handed_down
        self.manifest = None if self.given is None else self.given.manifest
        self.recipe = None if self.manifest is None else self.manifest.recipe
        """How data has to be read for the prior that was given."""
        given = {"epochs": asked.epochs, "lr": asked.lr}
        self.training = {name: value for name, value in given.items() if value is not None}
        if self.given is not None:
            self.given.name(asked.network)  # a prior that names no network is refused before data is read
        if not asked.dry_run:
            check_new(asked.out, asked.overwrite)

    def go(self) -> None:
        """The whole command; where only an estimate was asked for, that alone."""
        if self.asked.dry_run:
            self.estimate()
        else:
            self.learn(time.monotonic())

    def network(self, shape: tuple[int, ...], outputs: int) -> tuple[str, nn.Module]:
        """A fresh network and its name: as asked, else the prior's, else what suits the inputs."""
        known = None if self.given is None else self.given.name(self.asked.network)
        usual = HEAD if self.asked.features or self.asked.encoder else default_for(shape)
        name = known or self.asked.network or usual
        torch.manual_seed(self.asked.seed)
        return name, build(name, shape, outputs)

    def estimate(self) -> None:
        """The plan, and the memory and time it would take, before any example is read."""
        found = look(self.asked.where, self.asked.reading, self.recipe)
        if not found.shape or self.asked.features:
            rows = [("data", f"{found.count:,} examples"), ("plan", "a head on features: seconds for a thousand rows")]
            result = {"dry_run": True, "examples": found.count, "plan": {"ways": [HEAD], "reasons": []}}
            report(result, self.asked.as_json, f"What it would take to learn from {self.asked.where}", rows)
            return
        task = self.asked.task or (None if self.recipe is None else self.recipe.task)
        # Tables are read as a whole, labels too: a target without classes is a number.
        regression = (found.kind == "table" and not found.classes) or task == "regression"
        outputs = len(found.classes or ()) or (self.manifest.outputs if self.manifest else 1 if regression else 10)
        estimate = cost(
            self.network(found.shape, outputs)[1],
            found.shape,
            found.count,
            outputs,
            pt.GaussianNoise() if regression else pt.Categorical(),
            verb=self.verb,
            prior=self.prior,
            classes=found.classes,
            head=self.asked.head,
            training=self.training,
            candidates=self.candidates(found.kind == "table"),
        )
        classes = f", {len(found.classes)} classes" if found.classes else ""
        rows = [("data", f"{found.count:,} examples of {_times(found.shape)}{classes}"), *estimate.rows()]
        if not found.classes and not regression:
            rows.append(("assumed", f"{outputs} outputs: labels are not read for an estimate"))
        result = {"dry_run": True, "examples": found.count, "shape": found.shape, "outputs": outputs}
        title = f"What it would take to learn from {self.asked.where}"
        report(result | estimate.to_json(), self.asked.as_json, title, rows)

    def learn(self, began: float) -> None:
        """Read, fit, write the file, and print what happened."""
        asked, examples = self.asked, self.examples()
        name, model = self.network(tuple(examples.x.shape[1:]), examples.outputs)
        towards = "to" if self.verb == "adapt" else "from"
        note(f"{self.verb}ing {towards} {len(examples.x):,} examples with {name}", asked.quiet)
        fit = self.fit(examples, model)
        manifest = Manifest(examples.recipe, name, examples.outputs, examples.classes, self.verb, asked.head)
        fit = replace(fit, posterior=carrying(fit.posterior, manifest, examples, self.prior))
        if self.kind == "fit":
            save_fit(fit, asked.out, extra=manifest.to_json(), given=self.prior)
        else:
            fit.posterior.save(asked.out)
        seconds = time.monotonic() - began
        result = {
            "out": str(asked.out),
            "seconds": seconds,
            "examples": len(examples.x),
            "classes": list(examples.classes),
            "task": examples.recipe.task,
            "network": name,
            "seed": asked.seed,
            "plan": {"ways": list(fit.plan.ways), "reasons": list(fit.plan.reasons)},
        }
        made = "A prior from" if self.kind == "prior" else {"adapt": "Adapted to"}.get(self.verb, "Learned from")
        title = f"{made} {asked.where}"
        story = _story(examples, fit, name) | {"took": duration(seconds), "written to": str(asked.out)}
        # Before the page is drawn: what is written is written, whatever is missing for pictures.
        report(result, asked.as_json, title, story.items(), self.next_steps(fit))
        gaussians = {"prior": fit.prior, "posterior": fit.posterior}
        write_page(asked.page, lambda: fit_page(title, story, gaussians, fit.history, command_line()))

    def examples(self) -> TensorExamples:
        """All examples, read as the prior's data was."""
        note(f"reading {self.asked.where}", self.asked.quiet)
        # A head that is kept has its outputs in the order of the card's names, whichever of them the data has.
        known = self.prior.card.classes if self.prior is not None and self.asked.head == "keep" else ()
        found = read(self.asked.where, self.asked.reading, self.recipe, known)
        for line in found.notes:
            note(line, self.asked.quiet)
        if found.classes and len(found.classes) < 2:
            raise BadData(f'{self.asked.where} has one class, "{found.classes[0]}": at least two are needed.')
        return found

    def fit(self, examples: TensorExamples, model: nn.Module) -> pt.Fit:
        """Learn or adapt, with the options of the command line."""
        options: dict[str, Any] = {
            "classes": examples.classes or None,
            "head": self.asked.head,
            "groups": examples.groups,
            "generator": torch.Generator().manual_seed(self.asked.seed),
            "progress": not self.asked.quiet,
        }
        if isinstance(model, FeatureNetwork):
            return on_features(examples, self.prior, self.asked.words)
        likelihood = pt.Categorical() if examples.classes else pt.GaussianNoise()
        if self.verb == "adapt":
            assert self.prior is not None
            return pt.adapt(model, examples.pair, self.prior, likelihood, **options)
        options |= {"batch_size": self.asked.batch_size, "training": self.training}
        options["candidates"] = self.candidates(bool(examples.recipe.columns))
        return pt.learn(model, examples.pair, self.prior, likelihood, **options)

    def candidates(self, table: bool) -> Literal["network", "all"]:
        """For tables models of the inputs too; what is handed down as a prior is the network's, and needs none of them."""
        return "all" if table and self.kind == "fit" else "network"

    def next_steps(self, fit: pt.Fit) -> list[str]:
        """What to do with the file."""
        out = self.asked.out
        if self.kind == "prior":
            return [f"Next: posterity adapt {out} FEW-EXAMPLES --out FIT   (no training example is in {out})"]
        kept = (
            f"{out} holds the training examples: predictions need them. To share, take a prior (posterity prior learn)."
        )
        return [*([kept] if fit.examples else []), f"Next: posterity predict {out} NEW-DATA --out predictions.csv"]


def _times(shape: Sequence[int]) -> str:
    return "×".join(map(str, shape))


def _story(examples: TensorExamples, fit: pt.Fit, name: str) -> dict[str, str]:
    """What was learned from what, and how."""
    classes = f"{len(examples.classes)} classes: {', '.join(examples.classes)}" if examples.classes else "regression"
    story = {
        "examples": f"{len(examples.x):,} of {_times(examples.x.shape[1:])}, {classes}",
        **dict(examples.recipe.rows()),
        "network": f"{name}, {sum(p.numel() for p in fit.model.parameters()):,} parameters",
        "plan": " + ".join(fit.plan.ways),
        "because": "; ".join(fit.plan.reasons),
    }
    if fit.history is not None and fit.history.epochs:
        last = fit.history.final
        story["training"] = f"{len(fit.history.epochs)} epochs, NLL {last.nll:.3f}, accuracy {last.accuracy:.3f}"
    if fit.choice is not None and fit.choice.criterion == "fixed":
        story["strength"] = "set in advance: one example a class leaves none to choose by"
    elif fit.choice is not None:
        by_evidence = fit.choice.criterion == "evidence"
        by, what = ("the evidence", "strengths") if by_evidence else ("leave-one-out", "strengths and widths")
        story[f"chosen by {by}"] = f"{fit.choice.options} {what} compared"
    return story
