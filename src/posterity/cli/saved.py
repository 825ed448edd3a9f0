"""A fit as a folder that another process can use: files without code, and a sealed manifest that says what each is.

    manifest.json            network, recipe of the data, classes, what was chosen; sha256 of every file and of itself
    prior.safetensors        the prior as it was used, its strength chosen
    posterior.safetensors    the Gaussian over weights: the next task's prior
    weights.safetensors      the network's weights and buffers
    given.safetensors        the prior as it was given, where there was one
    examples.safetensors     the training examples themselves, where predictions need them (few examples)

A prior's folder holds manifest, posterior (as prior.safetensors) and weights, and no example.
"""

from __future__ import annotations

import hashlib
import json
import platform
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import safetensors.torch
import torch
from torch import Tensor, nn

import posterity as pt
from posterity.cli.networks import NETWORKS, build
from posterity.cli.reading import Recipe
from posterity.curvature import Likelihood
from posterity.errors import BadFitFolder, UnknownNetwork
from posterity.files import replacing
from posterity.kernel import Calibration
from posterity.version import __version__

FORMAT = 1
LIMIT = 16 * 2**20
"""Bytes of a manifest."""
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
    calibration: tuple[float, float]
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

    def fill(inside: Path) -> None:
        fit.prior.save(inside / "prior.safetensors")
        fit.posterior.save(inside / "posterior.safetensors")
        _save_weights(fit.model, inside)
        if given is not None:
            given.save(inside / "given.safetensors")
        if manifest.in_function_space:
            arrays = {"x": pair[0], "y": pair[1]}
            _save(arrays, inside / "examples.safetensors")

    _write(folder, manifest, fill)


def write_prior(folder: Path, manifest: Manifest, fit: pt.Fit) -> None:
    """The posterior of a fit as a prior to share: no example is in it."""

    def fill(inside: Path) -> None:
        fit.posterior.save(inside / "prior.safetensors")
        _save_weights(fit.model, inside)

    _write(folder, manifest, fill)


def check_new(folder: Path, overwrite: bool) -> None:
    """Refuse a folder that is there already, before an hour of work is lost to it."""
    if folder.exists() and not overwrite:
        raise BadFitFolder(f"{folder} is there already: choose another --out, or --overwrite it.")
    if folder.exists() and not (folder / "manifest.json").is_file():
        raise BadFitFolder(
            f"{folder} is there already and is no folder that posterity wrote: it will not be overwritten."
        )
    if not folder.resolve().parent.is_dir():
        raise BadFitFolder(f"there is no folder {folder.resolve().parent} to write {folder.name} into: make it first.")


@dataclass(frozen=True, eq=False)
class Opened:
    """A folder that was read: the manifest, and how to get at the rest."""

    folder: Path
    manifest: Manifest

    def network(self, network: str | None = None) -> nn.Module:
        """The network with the weights it was left with. A network that is somebody's code has to be named again."""
        name = self.manifest.network
        if name not in NETWORKS and network is None:
            raise UnknownNetwork(
                f"the network of {self.folder} is {name}, which is code and not in the folder: say --network {name} to run it."
            )
        model = build(network or name, self.manifest.recipe.shape, self.manifest.outputs)
        weights = safetensors.torch.load_file(self.folder / "weights.safetensors")
        own = model.state_dict()
        wrong = [
            k
            for k in own.keys() | weights.keys()
            if k not in own or k not in weights or own[k].shape != weights[k].shape
        ]
        if wrong:
            raise BadFitFolder(
                f'the network {network or name} is not the one that was learned: "{sorted(wrong)[0]}" differs.'
            )
        model.load_state_dict(weights)
        return model

    @property
    def prior(self) -> pt.Gaussian:
        """The prior: as it was used for a fit, or what a prior's folder hands down."""
        return pt.load(self.folder / "prior.safetensors")

    @property
    def handed_down(self) -> pt.Gaussian:
        """What the next task begins with: a fit's posterior, or a prior as it is."""
        return pt.load(self.folder / ("posterior.safetensors" if self.manifest.kind == "fit" else "prior.safetensors"))

    def examples(self) -> tuple[Tensor, Tensor] | None:
        """The training examples, where they are kept."""
        path = self.folder / "examples.safetensors"
        if not path.is_file():
            return None
        arrays = safetensors.torch.load_file(path)
        return arrays["x"], arrays["y"]

    def fit(self, network: str | None = None) -> pt.Fit:
        """The fit again. The exact posterior of few examples is computed anew from them: seconds for a hundred."""
        m = self.manifest
        if m.kind != "fit":
            raise BadFitFolder(f"{self.folder} is a prior: `posterity adapt {self.folder} DATA` makes a fit of it.")
        model = self.network(network)
        pair = self.examples()
        prior, posterior = self.prior, pt.load(self.folder / "posterior.safetensors")
        seed = torch.Generator().manual_seed(int(m.options.get("seed", 0)))
        calibration = Calibration(*m.calibration)
        if not m.in_function_space or pair is None:
            # Curvature is no part of what predicts or certifies: what a fit of many examples needs is its posterior.
            nothing = pt.Curvature({}, 0.0, m.count, pt.EKFAC(), m.likelihood)
            return pt.Fit(
                model,
                prior,
                posterior,
                curvature=nothing,
                scales=pt.Scales(),
                history=None,
                likelihood=m.likelihood,
                calibration=calibration,
            )
        likelihood = pt.Categorical() if m.classes else pt.GaussianNoise()
        weights = {k: v.clone() for k, v in model.state_dict().items()}
        shared: dict[str, Any] = {"classes": m.classes or None, "generator": seed, "progress": False}
        given = self.folder / "given.safetensors"
        if given.is_file():
            fit = pt.adapt(model, pt.load(given), pair, likelihood, head=m.options.get("head"), **shared)
        else:
            stay = {"start": "model", "epochs": 0}
            fit = pt.learn(model, pair, None, likelihood, training=stay, **shared)
        model.load_state_dict(weights)
        return replace(fit, model=model, prior=prior, posterior=posterior)


def open_folder(folder: Path) -> Opened:
    """The manifest of a folder, after its seal and the seal of every file were checked. Nothing in it is run.

    Raises:
        BadFitFolder: if it is none, or not as it was written.
    """
    path = folder / "manifest.json"
    if not path.is_file():
        raise BadFitFolder(
            f"{folder} is no folder of a fit or prior: it has no manifest.json. `posterity learn` writes one."
        )
    if path.stat().st_size > LIMIT:
        raise BadFitFolder(f"{path} has {path.stat().st_size:,} bytes: no manifest is as large.")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        seal = found.pop("sha256")
        if found["posterity_fit"] != FORMAT:
            raise BadFitFolder(
                f"{path} is in format {found['posterity_fit']}: this version of posterity knows {FORMAT}."
            )
        if _seal(found) != seal:
            raise BadFitFolder(f"{path} is not as it was written: its seal does not hold.")
        for name, digest in found["files"].items():
            if Path(name).name != name or _digest(folder / name) != digest:
                raise BadFitFolder(f"{folder / name} is not as it was written.")
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
            calibration=(float(found["calibration"][0]), float(found["calibration"][1])),
            in_function_space=bool(found["in_function_space"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError, OSError) as error:
        raise BadFitFolder(f"{path} is damaged: {type(error).__name__} {error}.") from None
    return Opened(folder, manifest)


def _save_weights(model: nn.Module, folder: Path) -> None:
    # Copies: safetensors refuses tensors that share memory, and tied weights do.
    _save({k: v.detach().clone() for k, v in model.state_dict().items()}, folder / "weights.safetensors")


def _save(arrays: dict[str, Tensor], path: Path) -> None:
    with replacing(path) as draft:
        safetensors.torch.save_file({name: value.contiguous() for name, value in arrays.items()}, draft)


def _write(folder: Path, manifest: Manifest, fill: Any) -> None:
    """Into a folder beside it first: whatever happens, the old one or the new one is there, and whole."""
    draft = folder.resolve().parent / f".{folder.name}-{secrets.token_hex(6)}"
    draft.mkdir()
    try:
        fill(draft)
        found = {
            "posterity_fit": FORMAT,
            **{k: v for k, v in vars(manifest).items() if k != "recipe"},
            "recipe": manifest.recipe.to_json(),
            "files": {p.name: _digest(p) for p in sorted(draft.iterdir())},
            "versions": {
                "posterity": __version__,
                "torch": str(torch.__version__),
                "python": platform.python_version(),
            },
        }
        text = json.dumps({"sha256": _seal(json.loads(json.dumps(found))), **found}, indent=1, ensure_ascii=False)
        (draft / "manifest.json").write_text(text + "\n", encoding="utf-8")
        if folder.exists():
            shutil.rmtree(folder)
        draft.rename(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _seal(found: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(found, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
