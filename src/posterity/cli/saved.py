"""A fit or a prior as the command line keeps it: a sealed folder, with the recipe of its data.

The files are those of `posterity.workflow.folders`. A prior's folder holds manifest, posterior (as prior.safetensors) and
weights, and no example.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from torch import Tensor, nn

import posterity as pt
from posterity.cli.networks import NETWORKS, build
from posterity.cli.reading import Recipe
from posterity.curvature import Likelihood
from posterity.errors import BadFitFolder, UnknownNetwork
from posterity.workflow.folders import (
    Remembered,
    check_new,
    fill_weights,
    open_parts,
    read_examples,
    read_sealed,
    save_parts,
    save_weights,
    telling_damage,
    write_sealed,
)

__all__ = ["Manifest", "Opened", "check_new", "open_folder", "write_fit", "write_prior"]

FORMAT = 1
Kind = Literal["fit", "prior"]


@dataclass(frozen=True)
class Manifest:
    """What a folder holds."""

    kind: Kind
    network: str
    recipe: Recipe
    classes: tuple[str, ...]
    outputs: int
    count: int
    """Examples that were learned from."""
    verb: str
    """What made it: learn or adapt."""
    options: Mapping[str, Any]
    noise: float | None
    """Noise precision of a regression, in the target's scale as the network sees it."""
    calibration: tuple[float, ...]
    in_function_space: bool
    """Whether predictions come from the exact posterior of few examples, which needs them."""

    @property
    def likelihood(self) -> Likelihood:
        """What outputs mean."""
        return pt.Categorical() if self.classes else pt.GaussianNoise(self.noise)


def write_fit(
    folder: Path, manifest: Manifest, fit: pt.Fit, given: pt.Gaussian | None, pair: tuple[Tensor, Tensor]
) -> None:
    """All that another process needs to predict, evaluate and certify."""
    _write(folder, manifest, lambda inside: save_parts(inside, fit, given, pair))


def write_prior(folder: Path, manifest: Manifest, fit: pt.Fit) -> None:
    """The posterior of a fit as a prior to share: no example is in it."""

    def fill(inside: Path) -> None:
        fit.posterior.save(inside / "prior.safetensors")
        save_weights(fit.model, inside)

    _write(folder, manifest, fill)


@dataclass(frozen=True, eq=False)
class Opened:
    """A folder that was read: the manifest, and how to get at the rest."""

    folder: Path
    manifest: Manifest

    def network(self, network: str | None = None) -> nn.Module:
        """The network with the weights it was left with. A network that is somebody's code has to be named again."""
        model = self._built(network)
        fill_weights(model, self.folder)
        return model

    def _built(self, network: str | None) -> nn.Module:
        name = self.manifest.network
        if name not in NETWORKS and network is None:
            raise UnknownNetwork(
                f"the network of {self.folder} is {name}, which is code and not in the folder: say --network {name} to run it."
            )
        return build(network or name, self.manifest.recipe.shape, self.manifest.outputs)

    @property
    def prior(self) -> pt.Gaussian:
        """The prior: as it was used for a fit, or what a prior's folder hands down."""
        return pt.load(self.folder / "prior.safetensors")

    @property
    def given(self) -> pt.Gaussian | None:
        """The prior as a fit was given it, if it was."""
        path = self.folder / "given.safetensors"
        return pt.load(path) if path.is_file() else None

    @property
    def handed_down(self) -> pt.Gaussian:
        """What the next task begins with: a fit's posterior, or a prior as it is."""
        return pt.load(self.folder / ("posterior.safetensors" if self.manifest.kind == "fit" else "prior.safetensors"))

    def examples(self) -> tuple[Tensor, Tensor] | None:
        """The training examples, where they are kept."""
        return read_examples(self.folder)

    def fit(self, network: str | None = None) -> pt.Fit:
        """The fit again. The exact posterior of few examples is computed anew from them: seconds for a hundred."""
        m = self.manifest
        if m.kind != "fit":
            raise BadFitFolder(f"{self.folder} is a prior: `posterity adapt {self.folder} DATA` makes a fit of it.")
        known = Remembered(
            m.likelihood,
            m.calibration,
            m.in_function_space,
            m.count,
            m.classes,
            m.options.get("head"),
            int(m.options.get("seed", 0)),
        )
        return open_parts(self.folder, self._built(network), known)


def open_folder(folder: Path) -> Opened:
    """The manifest of a folder, after its seal and the seal of every file were checked. Nothing in it is run.

    Raises:
        BadFitFolder: if it is none, or not as it was written.
    """
    found = read_sealed(folder, "posterity_fit", FORMAT, "`posterity learn`")
    with telling_damage(folder / "manifest.json"):
        manifest = Manifest(
            kind={"fit": "fit", "prior": "prior"}[found["kind"]],  # type: ignore[arg-type]
            network=str(found["network"]),
            recipe=Recipe.from_json(found["recipe"]),
            classes=tuple(str(c) for c in found["classes"]),
            outputs=int(found["outputs"]),
            count=int(found["count"]),
            verb=str(found["verb"]),
            options=dict(found["options"]),
            noise=None if found["noise"] is None else float(found["noise"]),
            calibration=tuple(float(value) for value in found["calibration"]),
            in_function_space=bool(found["in_function_space"]),
        )
    return Opened(folder, manifest)


def _write(folder: Path, manifest: Manifest, fill: Any) -> None:
    told = {k: v for k, v in vars(manifest).items() if k != "recipe"}
    write_sealed(folder, {"posterity_fit": FORMAT, **told, "recipe": manifest.recipe.to_json()}, fill)
