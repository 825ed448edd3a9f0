"""What the command line adds to a file: which network it is for, and how its data is read.

A fit is the one file of `Fit.save`. A prior is the file of a Gaussian, with no example in it: what is added stands on its card,
so that `pt.load` opens it too.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from torch import nn

import posterity as pt
from posterity.cli.networks import NETWORKS, build
from posterity.cli.reading import DataRecipe
from posterity.cli.reading import TensorExamples as ReadExamples
from posterity.cli.reading.seen import SeenRows
from posterity.data.examples import TrainingSet
from posterity.errors import BadData, DamagedFile, NotAFit, NotWritable, Overlap, UnknownNetwork
from posterity.files import check_place
from posterity.gaussian.card import Card
from posterity.gaussian.container import naming
from posterity.gaussian.plain import parse
from posterity.workflow.file import FitManifest, read_manifest


@dataclass(frozen=True)
class Manifest:
    """What the command line adds to the file of a fit or a prior: the network's name and how data is read."""

    recipe: DataRecipe
    network: str | None = None
    """Its name; None for a prior that does not say."""
    outputs: int = 0
    classes: tuple[str, ...] = ()
    verb: Literal["learn", "adapt"] = "learn"
    """What made it."""
    head: Literal["keep", "new"] | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain values: those of the recipe, and its own."""
        return {**self.recipe.to_json(), **{k: v for k, v in asdict(self).items() if k != "recipe"}}

    @classmethod
    def from_json(cls, found: Any) -> Manifest:
        """From plain values, each looked at: they may come from a file of unknown origin."""
        try:
            recipe = DataRecipe.from_json(found)
            network, classes = found.get("network"), tuple(map(str, found.get("classes") or ()))
            head = {None: None, "keep": "keep", "new": "new"}[found.get("head")]
            outputs = int(found.get("outputs") or len(classes))
            if network is not None and not isinstance(network, str):
                raise TypeError(f"a network is named by text, not {network!r:.40}")
        except (BadData, KeyError, TypeError, ValueError, AttributeError) as error:
            raise DamagedFile(f"what the command line added to it is damaged: {error}.") from None
        verb: Literal["learn", "adapt"] = "adapt" if found.get("verb") == "adapt" else "learn"
        return cls(recipe, network, outputs, classes, verb, head)  # type: ignore[arg-type]


def carrying(
    posterior: pt.Gaussian, manifest: Manifest, examples: ReadExamples, given: pt.Gaussian | None
) -> pt.Gaussian:
    """The Gaussian with the manifest, and hashes of the rows it has seen, on its card.

    A file of it alone still says how data is read for it, and knows its rows again after rounding.
    """
    rows = SeenRows.of(examples)
    rows = rows if given is None else rows.joined(seen_rows_of(given))
    text = json.dumps(manifest.to_json() | {"rows": rows.to_json()}, allow_nan=False)
    return replace(posterior, card=replace(posterior.card, recipe=text))


def manifest_of(card: Card) -> Manifest | None:
    """Which network a prior is for and how data is read for it, if its card says so."""
    return Manifest.from_json(parse(card.recipe)) if card.recipe else None


def seen_rows_of(prior: pt.Gaussian) -> SeenRows:
    """The rows of tables that a prior has seen, as far as its card says."""
    recipe = parse(prior.card.recipe) if prior.card.recipe else {}
    return SeenRows.from_json(recipe.get("rows", "") if isinstance(recipe, dict) else "")


def check_new_rows(prior: pt.Gaussian | None, examples: ReadExamples) -> None:
    """Refuse to certify by rows that the prior has seen, up to rounding.

    Raises:
        Overlap: if there are such rows.
    """
    found = 0 if prior is None else seen_rows_of(prior).among(examples)
    if found:
        raise Overlap(
            f"{found:,} of the {len(examples.x):,} rows are, up to rounding, rows that the prior was learned from: certify by "
            "others."
        )


@dataclass(frozen=True, eq=False)
class SavedFile:
    """A fit or a prior that was opened: its manifest, and how to get at the rest."""

    path: Path
    manifest: Manifest | None
    """None for a prior that says nothing of its data."""
    content: FitManifest | pt.Gaussian
    """Of a prior, the Gaussian alone."""

    @property
    def handed_down(self) -> pt.Gaussian:
        """What the next task begins with: a fit's posterior, or a prior as it is."""
        return self.content if isinstance(self.content, pt.Gaussian) else self.content.gaussian("posterior")

    @property
    def given(self) -> pt.Gaussian | None:
        """The prior as a fit was given it, if it was."""
        with naming(self.path):
            return self._fit.given

    @property
    def count(self) -> int:
        """Examples that a fit learned from."""
        with naming(self.path):
            return self._fit.count

    def examples(self) -> TrainingSet | None:
        """The training examples, where they are kept."""
        with naming(self.path):
            return self._fit.examples()

    def network(self, network: str | None = None) -> nn.Module:
        """The network with the weights it was left with. A network that is the user's own code has to be named again."""
        with naming(self.path):
            return self._fit.network(self.built(network))

    def fit(self, network: str | None = None) -> pt.Fit:
        """The fit that was saved, ready to predict."""
        model = self.built(network)
        with naming(self.path):
            return self._fit.fit(model)

    def built(self, network: str | None = None) -> nn.Module:
        """A new network of the right shape."""
        manifest = self.said
        return build(self.name(network), manifest.recipe.shape, manifest.outputs)

    def name(self, network: str | None = None) -> str:
        """The network's name. One that is code is run only if the user names it again."""
        known = None if self.manifest is None else self.manifest.network
        if network is not None:
            return network
        if known is None:
            raise UnknownNetwork(f"{self.path} does not say which network it is for: name it with --network.")
        if known not in NETWORKS:
            raise UnknownNetwork(
                f"the network of {self.path} is {known}, which is code and not in the file: say --network {known} to run it."
            )
        return known

    @property
    def said(self) -> Manifest:
        """The manifest, which has to be there."""
        if self.manifest is None:
            raise NotAFit(f"{self.path} does not say how its data is read: `posterity learn` writes files that do.")
        return self.manifest

    @property
    def _fit(self) -> FitManifest:
        if isinstance(self.content, pt.Gaussian):
            raise NotAFit(f"it is a prior: `posterity adapt {self.path} DATA --out FIT` makes a fit of it.")
        return self.content


def open_saved(path: Path) -> SavedFile:
    """A fit or a prior, every byte checked. Nothing in it is run.

    Raises:
        BadPriorFile: under the fitting name, if it is damaged or something else.
    """
    try:
        found = read_manifest(path)
    except NotAFit:
        prior = pt.load(path)
        with naming(path):
            return SavedFile(path, manifest_of(prior.card), prior)
    with naming(path):
        return SavedFile(path, Manifest.from_json(found.extra) if found.extra else None, found)


def check_new(path: Path, overwrite: bool) -> None:
    """Refuse a place that is taken, or that cannot be written to, before an hour of work is lost to it."""
    if path.is_dir():
        raise NotWritable(f"{path} is a folder, and a fit or a prior is one file: name another place.")
    if path.exists() and not overwrite:
        raise NotWritable(f"{path} is there already: choose another name; --overwrite replaces it.")
    check_place(path)
