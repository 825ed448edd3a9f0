"""How the priors of the zoo are made, each by one command: `python -m posterity_studies.zoo NAME`."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

import posterity as pt
from posterity_studies.demo.source import learn_prior
from posterity_studies.shared.datasets.packed import imagenet_samples
from posterity_studies.shared.resnet import imagenet_resnet50, normalised
from posterity_studies.shared.sentiment import CLASSES, drawn
from posterity_studies.shared.watch import meet
from posterity_studies.studies.lora.methods import Texts, trained, with_adapters


def watch() -> pt.Gaussian:
    """The watch's network after all ten wearers and all seven exercises."""
    everybody = meet(wearer=0, unknown=7)  # there is neither
    scaling = "; ".join(
        f"{name} {', '.join(f'{v:.4g}' for v in tensor.flatten().tolist())}"
        for name, tensor in (("means", everybody.mean), ("deviations", everybody.deviation))
    )
    text = (
        "Seven shoulder exercises from two seconds of a smartwatch (50 Hz; acceleration in g, turning rate in rad/s), "
        f"learned from ten wearers. Inputs are scaled by channel: {scaling}."
    )
    return _described(learn_prior(everybody), text, "BSD-3-Clause (seglearn's recordings)")


def minilm_adapters() -> pt.Gaussian:
    """Adapters of a sentence model after 160 film reviews, as in the study."""
    generator = torch.Generator().manual_seed(0)
    index = drawn("film reviews", 80, generator)
    index = [index[i] for i in torch.randperm(len(index), generator=generator).tolist()]
    data = Texts()("film reviews", index, 20)
    model = trained(with_adapters(0), data, epochs=3, lr=2e-3)
    found = pt.posterior(model, data, precision=1.0, generator=generator, progress=False).posterior
    text = (
        "Whether a sentence is positive: adapters of rank 2 in the last two layers of all-MiniLM-L6-v2, and a head, after 160 "
        "film reviews."
    )
    card = replace(found.card, classes=CLASSES)
    return _described(replace(found, card=card), text, "Apache-2.0 (weights), MIT (sentences)")


def resnet50_head() -> pt.Gaussian:
    """The last layer of an ImageNet network, from images without their labels."""
    images, _ = imagenet_samples().decoded(range(0, 1000, 10), 128)
    text = (
        "The head of ResNet-50 (v1): its weights after ImageNet, and their curvature at 100 ImageNet images of 128 × 128 pixels "
        "without labels. Features are what the network's own layers below it give."
    )
    generator = torch.Generator().manual_seed(0)
    found = pt.prior(
        imagenet_resnet50(), normalised(images), population=1_281_167, blocks=["fc"], batch_size=10, generator=generator,
        progress=False,
    )  # fmt: skip
    return _described(found, text, "MIT (weights)")


MADE: dict[str, Callable[[], pt.Gaussian]] = {
    "minilm-adapters": minilm_adapters,
    "resnet50-head": resnet50_head,
    "watch": watch,
}


def _described(prior: pt.Gaussian, text: str, licence: str) -> pt.Gaussian:
    """In single precision, with its story."""
    return replace(prior.to(dtype=torch.float32), card=replace(prior.card, text=text, licence=licence))


def main(names: list[str]) -> None:
    """Make some of them, or all, in the zoo's folder."""
    target = pt.zoo.folder()
    target.mkdir(parents=True, exist_ok=True)
    for name in names or MADE:
        torch.manual_seed(0)
        path: Path = target / f"{name}.safetensors"
        MADE[name]().save(path)
        print(f"{path}: {path.stat().st_size} bytes, sha256 {hashlib.sha256(path.read_bytes()).hexdigest()}")


if __name__ == "__main__":
    main(sys.argv[1:])
