"""A fit as one plain network: inputs in, calibrated probabilities and a score for unknown inputs out.

What a service runs need not know of posteriors: the module has weights and matrices as buffers, and only operations that
`torch.export` and ONNX have. It says what `Fit.predict` says, up to the rounding of its precision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from posterity.blocks import find_blocks, named, write_blocks
from posterity.blocks.replicas import copied
from posterity.curvature import GaussianNoise, Likelihood
from posterity.errors import NotExportable
from posterity.kernel import Link
from posterity.novelty import Reference, watching
from posterity.predictive.beside_network import InputModelPredictor
from posterity.predictive.exact import AveragedNetworks, LastLayer
from posterity.predictive.head import HeadModule, HeadPredictor
from posterity.predictive.in_features import FeatureGaussian
from posterity.predictive.linearised import StructuredGaussian
from posterity.predictive.prediction import Moments, probabilities, regression
from posterity.predictive.predictor import Predictor, Stack


class PredictionModule(nn.Module):
    """Inputs → (probabilities, unknown), or of a regression (mean, variance, unknown); without a reference no unknown."""

    def __init__(self, parts: Sequence[_Part], likelihood: Likelihood, link: Link, reference: Reference | None) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)
        self.likelihood, self.link, self.reference = likelihood, link, reference

    def forward(self, *args: Any, **kwargs: Any) -> tuple[Tensor, ...]:
        """As `Fit.predict`, in the precision of the network, float32 at least."""
        reference, (first, *others) = self.reference, list(self.parts)
        with watching(cast(nn.Module, first.watched), () if reference is None else reference.layers, None) as watch:
            moments: list[Moments] = first(*args, **kwargs)
            watch.given(args, kwargs)
        for part in others:
            moments += part(*args, **kwargs)
        found: tuple[Tensor, ...]
        if isinstance(self.likelihood, GaussianNoise):
            numbers = regression(moments, self.likelihood)
            found = numbers.mean, numbers.variance
        else:
            found = (probabilities(moments, self.likelihood, self.link),)
        if reference is not None:
            found = *found, reference.of_outputs(watch.features, moments[0].mean, self.likelihood)
        return tuple(x.float() for x in found)


def as_module(
    network: nn.Module, predictor: Predictor, reference: Reference | None = None, unknown: bool = True
) -> nn.Module:
    """A predictor and the network that it is for as one module, and what unknown inputs are found by.

    Raises:
        NotExportable: if predictions take gradients of the network, or draws.
    """
    if predictor.link == "sampled":
        raise NotExportable(
            'link="sampled" draws outputs, and an exported network has no draws. Learn with link="probit".'
        )
    if isinstance(predictor, HeadPredictor):
        return HeadModule(predictor, unknown).eval()
    parts = _parts(network, predictor, 1.0)
    return PredictionModule(parts, predictor.likelihood, predictor.link, reference if unknown else None).eval()


def _parts(network: nn.Module, predictor: Predictor, weight: float) -> list[_Part]:
    if not weight:
        return []
    match predictor:
        case Stack():
            return [x for share, one in predictor.parts for x in _parts(network, one, weight * share)]
        case AveragedNetworks():
            own = {"calibration": predictor.calibration}
            return [_Network(network, w, {"weight": weight * share, **own}) for share, w in predictor.networks]
        case LastLayer():
            return [_LastLayer(network, predictor, weight)]
        case InputModelPredictor():
            return [_InputModel(predictor, weight)]
    raise NotExportable(_remedy(predictor))


def _remedy(predictor: Predictor) -> str:
    layers = tuple(predictor.gaussian.mean) if isinstance(predictor, StructuredGaussian) else ()
    one = layers[0] if len(layers) == 1 else None
    # A network that has memorised its examples has no exact last layer without others to judge it by.
    remedy = (
        'Learn a last layer, pt.posterior(model, data, blocks=["its name"]), which takes one forward pass'
        if one is None
        else f'With examples that were not trained on, pt.posterior(model, data, blocks=["{one}"], validation=others), a last '
        "linear layer takes one forward pass"
    )
    return (
        f"predictions of {'a Gaussian' if layers else 'an exact posterior'} over {'a layer' if one else 'all layers'} take "
        "gradients of the network, which an exported network does not have. "
        f"{remedy}; or serve the fit itself: fit.save(path) and pt.load(path, model)."
    )


class _Part(nn.Module):
    """One part of the average, or several that share a forward pass."""

    watched: nn.Module
    """Whose layers show unknown inputs."""


class _Network(_Part):
    """A trained network as it is."""

    def __init__(self, network: nn.Module, weights: Mapping[str, Tensor], own: dict[str, Any]) -> None:
        super().__init__()
        self.network = self.watched = copied(network).eval()
        blocks = write_blocks(find_blocks(self.network, named(weights)), weights)
        with torch.no_grad():
            for name, value in blocks.items():
                self.network.get_parameter(name).copy_(value)
        self.network.requires_grad_(False)
        self.own = own

    def forward(self, *args: Any, **kwargs: Any) -> list[Moments]:
        mean = _logits(self.network(*args, **kwargs)).double()
        certain = torch.zeros_like(mean)[..., None] * torch.zeros_like(mean)[..., None, :]
        return [Moments(mean=mean, covariance=certain, **self.own)]


class _LastLayer(_Part):
    """One forward pass up to the layer, and a few products with its features for every posterior of the average."""

    def __init__(self, network: nn.Module, predictor: LastLayer, weight: float) -> None:
        super().__init__()
        self.body = self.watched = copied(network).eval().requires_grad_(False)
        head = self.body.get_submodule(predictor.head)
        self.head = head
        # The network's outputs are this layer's: with the identity in its place they are its features.
        parent, _, name = predictor.head.rpartition(".")
        setattr(self.body.get_submodule(parent), name, nn.Identity())
        parts = predictor.parts()
        self.own = [own | {"weight": weight * own["weight"]} for _, own in parts]
        precision = predictor.point[predictor.head].dtype
        self.posteriors = nn.ModuleList(FeatureGaussian(posterior, predictor.head, precision) for posterior, _ in parts)

    def forward(self, *args: Any, **kwargs: Any) -> list[Moments]:
        features = _logits(self.body(*args, **kwargs))
        outputs = self.head(features)
        found = (posterior(features, outputs) for posterior in self.posteriors)
        return [Moments(mean=mean, covariance=c, **own) for own, (mean, c) in zip(self.own, found, strict=True)]


class _InputModel(_Part):
    """A model of the inputs: its arrays become constants of the exported network."""

    def __init__(self, predictor: InputModelPredictor, weight: float) -> None:
        super().__init__()
        self.watched = nn.Identity()  # it is not run
        self.predictor, self.weight = predictor, weight

    def forward(self, x: Tensor) -> list[Moments]:
        return [replace(self.predictor.of_rows(x), weight=self.weight)]


def _logits(found: Any) -> Tensor:
    return found if isinstance(found, Tensor) else found.logits
