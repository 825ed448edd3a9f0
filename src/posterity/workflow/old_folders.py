"""Folders in which earlier versions kept a fit, a prior or an estimator: they are still read, and no longer written.

A sealed manifest.json lists every file with its sha256. What it does not list is refused: a folder that was copied over another.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from posterity.blocks import find_blocks, named, write_blocks
from posterity.blocks.replicas import copied
from posterity.curvature import EKFAC, Categorical, Curvature, GaussianNoise, Likelihood
from posterity.data.batches import Batch
from posterity.data.examples import Examples
from posterity.data.leave_out import LeaveOut
from posterity.errors import BadFitFolder, BadPriorFile
from posterity.gaussian import Gaussian
from posterity.gaussian.header import parse
from posterity.gaussian.storage import load as load_gaussian
from posterity.kernel import Calibration
from posterity.laplace import Scales
from posterity.predictive.exact import AveragedNetworks, ExactLinear
from posterity.predictive.linearised import StructuredGaussian
from posterity.predictive.predictor import Predictor, Stack
from posterity.workflow.file import naming, with_weights
from posterity.workflow.fit import Fit
from posterity.workflow.learn import adapt, learn
from posterity.workflow.make import stacked
from posterity.workflow.plan import Plan
from posterity.workflow.problem import Problem
from posterity.workflow.ways.candidate import Candidate, Options
from posterity.workflow.ways.small_networks import Siblings, around_siblings

LIMIT = 16 * 2**20
"""Bytes of a manifest."""


@dataclass(frozen=True, eq=False)
class OldFolder:
    """What `FitManifest` is of a file: every byte was checked, and nothing is built yet."""

    folder: Path
    extra: dict[str, Any]
    """The manifest."""

    @classmethod
    def read(cls, folder: Path) -> OldFolder:
        """The manifest of a folder, after its seal and the seal of every file were checked. Nothing in it is run.

        Raises:
            BadFitFolder: if it is none, or not as it was written.
        """
        path = folder / "manifest.json"
        if not path.is_file() or path.stat().st_size > LIMIT:
            raise BadFitFolder(
                f"{folder} is no folder of a fit or prior: it has no manifest.json. Name the file of a fit."
            )
        try:
            found: dict[str, Any] = parse(path.read_text(encoding="utf-8"))
            seal, files = found.pop("sha256"), found["files"]
            text = json.dumps(found, sort_keys=True, ensure_ascii=False)
            if hashlib.sha256(text.encode()).hexdigest() != seal:
                raise BadFitFolder(f"{path} is not as it was written: its seal does not hold.")
            if other := {p.name for p in folder.iterdir()} - {"manifest.json", *files}:
                raise BadFitFolder(f"{folder / min(other)} is not in the manifest: two folders were mixed.")
            for name, digest in files.items():
                if hashlib.sha256((folder / name).read_bytes()).hexdigest() != digest:
                    raise BadFitFolder(f"{folder / name} is not as it was written.")
        except (KeyError, TypeError, ValueError, AttributeError, OSError, BadPriorFile) as error:
            raise BadFitFolder(f"{path} is damaged: {type(error).__name__} {error}.") from None
        return cls(folder, found)

    @property
    def count(self) -> int:
        """Examples that were learned from."""
        return int(self.extra["count"])

    @property
    def given(self) -> Gaussian | None:
        """The prior as it was given, where there was one."""
        return self.gaussian("given") if "given.safetensors" in self.extra["files"] else None

    def gaussian(self, which: str) -> Gaussian:
        """The prior or the posterior, without the network."""
        return load_gaussian(self.folder / f"{which}.safetensors")

    def examples(self) -> Examples | None:
        """The training examples, where they are kept."""
        if not (arrays := self._arrays("examples")):
            return None
        x, y = arrays["x"], arrays["y"]
        targets = y if self._classes else y.view(len(y), -1)
        return Examples([Batch((x,), {}, y, 0)], targets, len(self._classes) or targets.shape[1])

    def network(self, model: nn.Module) -> nn.Module:
        """A copy of a network with the weights of the folder."""
        return with_weights(model, self._arrays("weights"))

    def fit(self, model: nn.Module) -> Fit:
        """The whole fit. The exact posterior of few examples is computed again from them."""
        with naming(self.folder):
            network, prior, posterior = self.network(model), self.gaussian("prior"), self.gaussian("posterior")
            averaged, examples = self._averaged, self.examples()
            if examples is not None and self.extra["in_function_space"]:
                predictor, way = self._exact(network, prior, examples, averaged), "exact around the prior"
            else:
                calibration = Calibration(*map(float, self.extra["calibration"]))
                alone = StructuredGaussian(posterior, calibration, self._likelihood, "probit")
                around = StructuredGaussian(posterior, calibration, self._likelihood, "probit", in_unknown=1.0)
                predictor = alone if averaged is None else Stack(((0.0, around), (1.0, averaged)))
                examples, way = None, "one network"
            plan = Plan(self.extra.get("verb", "learn"), (way,), ("it was read from a folder of an older version",))  # type: ignore[arg-type]
            # Curvature is no part of what predicts or certifies.
            nothing = Curvature({}, 0.0, self.count, EKFAC(), predictor.likelihood)
            return Fit(network, prior, posterior, nothing, Scales(), None, predictor, plan, examples)

    def _exact(
        self, network: nn.Module, prior: Gaussian, examples: Examples, averaged: AveragedNetworks | None
    ) -> Predictor:
        asked = GaussianNoise() if isinstance(self._likelihood, GaussianNoise) else self._likelihood
        options = self.extra["options"]
        dice = torch.Generator().manual_seed(int(options.get("seed", 0)))
        shared: dict[str, Any] = {"classes": self._classes or None, "generator": dice, "progress": False}
        twin = copied(network)
        if siblings := self._arrays("siblings"):
            return self._siblings(network, prior, examples, siblings)
        if self.given is not None:
            made = adapt(twin, self.given, examples.data, asked, head=options.get("head"), **shared)
        else:
            trained = {"start": "model", "epochs": 0, "polish_steps": 0}
            made = learn(twin, examples.data, prior, asked, training=trained, **shared)
        if averaged is None or not isinstance(made.predictor, ExactLinear):
            return made.predictor
        known = [m.weight * m.log_probs.exp() for m in made.predictor.choice.members if m.log_probs is not None]
        probs = self._arrays("networks")["log_probs"].double().exp()
        # Older versions left out examples that are alone in their class too: their scores are of other examples.
        here = torch.stack(known).sum(0).double() if known and len(known[0]) == len(probs) else None
        candidates = Candidate(prior, asked, made.predictor, here), Candidate(prior, asked, averaged, probs)
        return stacked(candidates, LeaveOut.of(examples.targets, None))

    def _siblings(self, network: nn.Module, prior: Gaussian, examples: Examples, arrays: dict[str, Tensor]) -> Stack:
        folds, noise = arrays.pop("folds"), GaussianNoise(float(arrays.pop("noise")[0]))
        blocks = find_blocks(network, named(prior.mean))
        others = [write_blocks(blocks, some) for some in _numbered(arrays)]
        # The noise is found again where it was: leaving out chose another than they were trained with.
        same = isinstance(self._likelihood, GaussianNoise) and self._likelihood.value == noise.value
        problem = Problem.of(network, examples.data, noise if same else GaussianNoise(), prior=prior)
        return around_siblings(problem, prior, Siblings(noise, {}, tuple(others), folds, 0.0), Options())[0]

    @property
    def _classes(self) -> tuple[str, ...]:
        found = self.extra["classes"] or ()
        return tuple(map(str, found["values"] if isinstance(found, dict) else found))

    @property
    def _likelihood(self) -> Likelihood:
        noise = self.extra["noise"]
        return Categorical() if self._classes else GaussianNoise(None if noise is None else float(noise))

    @cached_property
    def _averaged(self) -> AveragedNetworks | None:
        if not (arrays := self._arrays("networks")):
            return None
        shares = arrays.pop("shares").tolist()
        tau, temperature, _ = arrays.pop("numbers").tolist()
        networks = tuple(zip(shares, _numbered(arrays), strict=True))
        return AveragedNetworks(networks, Calibration(tau, temperature), self._likelihood)

    def _arrays(self, name: str) -> dict[str, Tensor]:
        if f"{name}.safetensors" not in self.extra["files"]:
            return {}
        try:
            return safetensors.torch.load_file(self.folder / f"{name}.safetensors")
        except (safetensors.SafetensorError, OSError) as error:
            raise BadFitFolder(f"{self.folder / name}.safetensors is damaged: {error}.") from None


def _numbered(arrays: dict[str, Tensor]) -> list[dict[str, Tensor]]:
    """Tensors "0/name", "1/name", … by their number."""
    found: dict[int, dict[str, Tensor]] = {}
    for key, value in arrays.items():
        number, _, name = key.partition("/")
        if name:
            found.setdefault(int(number), {})[name] = value
    return [found[number] for number in sorted(found)]
