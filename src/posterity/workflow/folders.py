"""A fit as a folder that another process can use: files without code, and a sealed manifest that says what each is.

manifest.json            what a caller says of the fit; sha256 of every file and of itself
prior.safetensors        the prior as it was used, its strength chosen
posterior.safetensors    the Gaussian over weights: the next task's prior
weights.safetensors      the network's weights and buffers
given.safetensors        the prior as it was given, where there was one
examples.safetensors     the training examples themselves, where predictions need them (few examples)
networks.safetensors     trained networks that predictions are averaged with, where there are any
siblings.safetensors     networks that left a part of the examples out, for a regression without a prior
"""

from __future__ import annotations

import hashlib
import json
import platform
import secrets
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

from posterity.blocks import find_blocks, named, write_blocks
from posterity.curvature import EKFAC, Curvature, GaussianNoise, Likelihood
from posterity.errors import BadFitFolder
from posterity.files import replacing
from posterity.gaussian import Gaussian, load
from posterity.kernel import Calibration, FunctionSpace, Networks, stacked
from posterity.kernel.kernels import gather
from posterity.laplace import Scales
from posterity.laplace.train import NotAtMode
from posterity.version import __version__
from posterity.workflow.fit import Fit
from posterity.workflow.folds import Siblings, around_siblings
from posterity.workflow.learn import adapt, learn

LIMIT = 16 * 2**20
"""Bytes of a manifest."""


@dataclass(frozen=True)
class Remembered:
    """What a manifest has to say of a fit, beside the files, for it to predict again."""

    likelihood: Likelihood
    calibration: tuple[float, ...]
    in_function_space: bool
    """Whether predictions come from the exact posterior of few examples, which needs them."""
    count: int
    """Examples that were learned from."""
    classes: tuple[str, ...] = ()
    head: Any = None
    seed: int = 0

    @classmethod
    def of(cls, fit: Fit, count: int, classes: Sequence[str] = (), head: Any = None, seed: int = 0) -> Remembered:
        """What to remember of a fit."""
        return cls(fit.likelihood, fit.calibration.numbers, fit.function is not None, count, tuple(classes), head, seed)


def save_parts(folder: Path, fit: Fit, given: Gaussian | None, pair: tuple[Tensor, Tensor] | None) -> None:
    """The files of a fit, but for the manifest. The examples are kept only where predictions need them."""
    fit.prior.save(folder / "prior.safetensors")
    fit.posterior.save(folder / "posterior.safetensors")
    save_weights(fit.model, folder)
    if given is not None:
        given.save(folder / "given.safetensors")
    networks = fit.networks if fit.function is None else fit.function.choice.networks
    if networks is not None:
        arrays = {
            f"{i}/{name}": value for i, (_, blocks) in enumerate(networks.weights) for name, value in blocks.items()
        }
        numbers = [networks.calibration.tau, networks.calibration.temperature, networks.nll]
        arrays["log_probs"] = networks.log_probs
        arrays["numbers"] = torch.tensor(numbers, dtype=torch.float64)
        arrays["shares"] = torch.tensor([share for share, _ in networks.weights], dtype=torch.float64)
        save_arrays(arrays, folder / "networks.safetensors")
    if fit.function is None:
        return
    if pair is None:
        raise BadFitFolder("the exact posterior of few examples is computed from them again: they have to be given.")
    save_arrays({"x": pair[0], "y": pair[1]}, folder / "examples.safetensors")
    if fit.function.folds is not None:
        arrays = {f"{i}/{name}": m for i, other in enumerate(fit.function.siblings) for name, m in other.point.items()}
        trained_with = fit.function.siblings[0].choice.best.posterior.of.likelihood
        assert isinstance(trained_with, GaussianNoise)
        arrays["noise"] = torch.tensor([trained_with.value], dtype=torch.float64)
        arrays["folds"] = fit.function.folds
        save_arrays(arrays, folder / "siblings.safetensors")


def open_parts(folder: Path, model: nn.Module, known: Remembered) -> Fit:
    """The fit again, in a network of the right shape. The exact posterior of few examples is computed anew from them."""
    fill_weights(model, folder)
    prior, posterior = load(folder / "prior.safetensors"), load(folder / "posterior.safetensors")
    pair = read_examples(folder)
    if not known.in_function_space or pair is None:
        # Curvature is no part of what predicts or certifies: what a fit of many examples needs is its posterior.
        nothing = Curvature({}, 0.0, known.count, EKFAC(), known.likelihood)
        tau, temperature, *usual = known.calibration
        calibration = Calibration(tau, temperature, *usual)
        like = known.likelihood
        return Fit(model, prior, posterior, nothing, Scales(), None, like, None, calibration, _networks(folder))
    likelihood = GaussianNoise() if isinstance(known.likelihood, GaussianNoise) else known.likelihood
    weights = {k: v.clone() for k, v in model.state_dict().items()}
    seed = torch.Generator().manual_seed(known.seed)
    shared: dict[str, Any] = {"classes": known.classes or None, "generator": seed, "progress": False}
    given = folder / "given.safetensors"
    if given.is_file():
        fit = adapt(model, load(given), pair, likelihood, head=known.head, **shared)
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NotAtMode)  # it was told when the network was trained
            fit = learn(model, pair, None, likelihood, training={"start": "model", "epochs": 0}, **shared)
    model.load_state_dict(weights)
    if (siblings := _siblings(folder, model, prior, pair, known.likelihood)) is not None:
        return replace(
            fit, model=model, prior=prior, posterior=posterior, function=siblings, likelihood=siblings.likelihood
        )
    function, networks = fit.function, _networks(folder)
    if networks is not None and function is not None and function.choice.networks is None:
        function = replace(function, choice=stacked(function.choice, networks))
    return replace(fit, model=model, prior=prior, posterior=posterior, function=function)


def _networks(folder: Path) -> Networks | None:
    path = folder / "networks.safetensors"
    if not path.is_file():
        return None
    arrays = safetensors.torch.load_file(path)
    tau, temperature, nll = arrays["numbers"].tolist()
    weights = []
    for i, share in enumerate(arrays["shares"].tolist()):
        blocks = {name.split("/", 1)[1]: value for name, value in arrays.items() if name.startswith(f"{i}/")}
        weights.append((share, blocks))
    return Networks(1.0, tuple(weights), Calibration(tau, temperature), nll, arrays["log_probs"])


def _siblings(
    folder: Path, model: nn.Module, prior: Gaussian, pair: tuple[Tensor, Tensor], likelihood: Likelihood
) -> FunctionSpace | None:
    """Posteriors around the network and its siblings again, calibrated by what these had left out."""
    path = folder / "siblings.safetensors"
    if not path.is_file() or not isinstance(likelihood, GaussianNoise):
        return None
    arrays = safetensors.torch.load_file(path)
    folds = arrays.pop("folds")
    noise, blocks = GaussianNoise(float(arrays.pop("noise")[0])), find_blocks(model, named(prior.mean))
    points: dict[int, dict[str, Tensor]] = {}
    for key, matrix in arrays.items():
        number, name = key.split("/", 1)
        points.setdefault(int(number), {})[name] = matrix
    others = tuple(write_blocks(blocks, points[i]) for i in sorted(points))
    examples = gather(model, pair, GaussianNoise(), len(pair[0]), len(pair[0]))
    assert examples is not None
    # The noise is found again where it was: leaving out chose another than they were trained with.
    asked = GaussianNoise(None if likelihood.value != noise.value else noise.value)
    return around_siblings(model, prior, Siblings(noise, {}, others, folds), examples, asked)


def read_examples(folder: Path) -> tuple[Tensor, Tensor] | None:
    """The training examples, where they are kept."""
    path = folder / "examples.safetensors"
    if not path.is_file():
        return None
    arrays = safetensors.torch.load_file(path)
    return arrays["x"], arrays["y"]


def fill_weights(model: nn.Module, folder: Path) -> None:
    """The weights that were saved, into a network that has to be the same."""
    weights = safetensors.torch.load_file(folder / "weights.safetensors")
    own = model.state_dict()
    wrong = [
        k for k in own.keys() | weights.keys() if k not in own or k not in weights or own[k].shape != weights[k].shape
    ]
    if wrong:
        raise BadFitFolder(f'the network is not the one that was learned: "{sorted(wrong)[0]}" differs.')
    model.load_state_dict(weights)


def save_weights(model: nn.Module, folder: Path) -> None:
    """The weights and buffers of a network."""
    # Copies: safetensors refuses tensors that share memory, and tied weights do.
    save_arrays({k: v.detach().clone() for k, v in model.state_dict().items()}, folder / "weights.safetensors")


def save_arrays(arrays: Mapping[str, Tensor], path: Path) -> None:
    """Tensors by name, as one file."""
    with replacing(path) as draft:
        safetensors.torch.save_file({name: value.contiguous() for name, value in arrays.items()}, draft)


def check_new(folder: Path, overwrite: bool, how: str = "overwrite=True replaces it") -> None:
    """Refuse a folder that is there already, before an hour of work is lost to it."""
    if folder.exists() and not overwrite:
        raise BadFitFolder(f"{folder} is there already: choose another name; {how}.")
    if folder.exists() and not (folder / "manifest.json").is_file():
        raise BadFitFolder(
            f"{folder} is there already and is no folder that posterity wrote: it will not be overwritten."
        )
    if not folder.resolve().parent.is_dir():
        raise BadFitFolder(f"there is no folder {folder.resolve().parent} to write {folder.name} into: make it first.")


def write_sealed(folder: Path, told: Mapping[str, Any], fill: Callable[[Path], None]) -> None:
    """Into a folder beside it first: whatever happens, the old one or the new one is there, and whole."""
    draft = folder.resolve().parent / f".{folder.name}-{secrets.token_hex(6)}"
    draft.mkdir()
    try:
        fill(draft)
        versions = {"posterity": __version__, "torch": str(torch.__version__), "python": platform.python_version()}
        files = {p.name: _digest(p) for p in sorted(draft.iterdir())}
        found = {**told, "files": files, "versions": versions}
        text = json.dumps({"sha256": _seal(json.loads(json.dumps(found))), **found}, indent=1, ensure_ascii=False)
        (draft / "manifest.json").write_text(text + "\n", encoding="utf-8")
        if folder.exists():
            shutil.rmtree(folder)
        draft.rename(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def read_sealed(folder: Path, key: str, version: int, maker: str) -> dict[str, Any]:
    """The manifest of a folder, after its seal and the seal of every file were checked. Nothing in it is run.

    Args:
        folder: that `write_sealed` wrote.
        key: under which the version of the format stands.
        version: that is known here.
        maker: what writes such folders, for the message.
    Returns:
        The manifest as plain values.
    Raises:
        BadFitFolder: if it is none, or not as it was written.
    """
    path = folder / "manifest.json"
    if not path.is_file():
        raise BadFitFolder(f"{folder} is no folder of a fit or prior: it has no manifest.json. {maker} writes one.")
    if path.stat().st_size > LIMIT:
        raise BadFitFolder(f"{path} has {path.stat().st_size:,} bytes: no manifest is as large.")
    with telling_damage(path):
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        seal = found.pop("sha256")
        if key not in found:
            raise BadFitFolder(f"{folder} holds something else: {maker} writes what is needed here.")
        if found[key] != version:
            raise BadFitFolder(f"{path} is in format {found[key]}: this version of posterity knows {version}.")
        if _seal(found) != seal:
            raise BadFitFolder(f"{path} is not as it was written: its seal does not hold.")
        for name, digest in found["files"].items():
            if Path(name).name != name or _digest(folder / name) != digest:
                raise BadFitFolder(f"{folder / name} is not as it was written.")
    return found


@contextmanager
def telling_damage(path: Path) -> Iterator[None]:
    """Whatever a damaged manifest leads to is told as that."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, OSError) as error:
        raise BadFitFolder(f"{path} is damaged: {type(error).__name__} {error}.") from None


def _seal(found: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(found, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
