"""A fit as one file that another process can use: tensors and plain values in a sealed container, and no code.

The header says what the file is, for which network, and by which plan it was made. Tensors are named by what they are for:

    network/…      the network's weights and buffers
    prior/…        the prior as it was used, its strength chosen
    given/…        the prior as it was given, where a caller keeps it
    posterior/…    the Gaussian over weights: the next task's prior
    predictor/…    what predictions are computed with
    examples/…     the training examples, where predictions are computed from them
    known/…        what unknown inputs are found by: features of some examples, and quantiles
    left_out/…     scores of left-out examples, which sets and intervals are made from
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from posterity.blocks import Replica
from posterity.blocks.replicas import copied
from posterity.checks import check_network
from posterity.curvature import EKFAC, Curvature
from posterity.data.batches import Batch
from posterity.data.examples import TrainingSet
from posterity.errors import DamagedFile, NotAFit, NotAPrior, NotStorable, OtherNetwork
from posterity.gaussian import Gaussian
from posterity.gaussian.bundle import Bundle, read_bundle, write_bundle
from posterity.gaussian.card import KnownFeatures
from posterity.gaussian.container import LIMIT, naming
from posterity.gaussian.storage import load as load_gaussian
from posterity.heads.views import FeatureNetwork
from posterity.laplace import Scales
from posterity.novelty import from_known, to_known
from posterity.predictive.predictor import Context
from posterity.predictive.sets import LeftOutScores
from posterity.workflow.plan import Plan

if TYPE_CHECKING:
    from posterity.workflow.fit import Fit

log = logging.getLogger("posterity")


class FitManifest(Bundle):
    """What a file says of its fit before anything is built."""

    @property
    def extra(self) -> dict[str, Any]:
        """What the writer added: how data is read, which network it was, say."""
        return dict(self.raw["extra"])

    @property
    def count(self) -> int:
        """Examples that were learned from."""
        return int(self.raw["count"])

    def own_network(self) -> nn.Module | None:
        """The network of a head on features; None for others, whose code is not in the file."""
        plain = self.raw["predictor"]
        if plain["kind"] != "features":
            return None
        width, outputs = int(plain["width"]), int(plain["outputs"])
        return FeatureNetwork(width, outputs).to(self.tensors["network/linear.weight"].dtype)

    @property
    def given(self) -> Gaussian | None:
        """The prior as it was given, where it is kept."""
        return self.gaussian("given") if "given" in self.raw else None

    def examples(self) -> TrainingSet | None:
        """The training examples, where they are kept."""
        sizes, named = self.raw["examples"], self.below("examples")
        if sizes is None:
            return None
        inputs = {name.removeprefix("inputs/"): x for name, x in named.items() if name.startswith("inputs/")}
        parts: list[Batch] = []
        start = 0
        for size in sizes["batches"]:
            stop = start + int(size)
            some = {name: x[start:stop] for name, x in inputs.items()}
            positional = () if sizes["named"] else tuple(some[str(i)] for i in range(len(some)))
            parts.append(
                Batch(positional, some if sizes["named"] else {}, named["batch_targets"][start:stop], len(parts))
            )
            start = stop
        if not parts or start != len(named["targets"]) or any(len(x) != start for x in inputs.values()):
            raise DamagedFile(f"its examples should be {start} by their batches, and are {len(named['targets'])}.")
        return TrainingSet(parts, named["targets"], int(sizes["outputs"]))

    def network(self, model: nn.Module) -> nn.Module:
        """A copy of a network with the weights of the file.

        Raises:
            OtherNetwork: if it has other layers.
        """
        found = with_weights(model, self.below("network"))
        trainable = set(self.raw["trainable"])
        for name, p in found.named_parameters():
            if p.is_floating_point():
                p.requires_grad_(name in trainable)
        return found

    def fit(self, model: nn.Module) -> Fit:
        """The whole fit, in a copy of the network given."""
        from posterity.workflow.fit import Fit  # which saves through this module

        network, examples = self.network(model), self.examples()
        prior, posterior = self.gaussian("prior"), self.gaussian("posterior")
        device = next(network.parameters()).device
        if device.type != "cpu":
            prior, posterior = prior.to(device), posterior.to(device)
        context = Context(Replica(copied(network).eval()), prior, posterior, examples)
        predictor = context.predictor(self.raw["predictor"], self.below("predictor"))
        if examples is not None:  # what does not fit together shows at the first prediction
            with torch.no_grad():
                predictor.moments(context.network, examples.inputs[0].rows(torch.arange(1)))
        verb, ways, reasons = (self.raw["plan"][name] for name in ("verb", "ways", "reasons"))
        plan = Plan(str(verb), tuple(map(str, ways)), tuple(map(str, reasons)))  # type: ignore[arg-type]
        # Curvature is no part of what predicts or certifies.
        nothing = Curvature({}, 0.0, int(self.raw["count"]), EKFAC(), predictor.likelihood)
        known = KnownFeatures(self.below("known"), self.raw.get("known", {}))  # files of older versions have none
        reference = from_known(known) if known else None
        scores = LeftOutScores(*found.values()) if (found := self.below("left_out")) else None
        return Fit(network, prior, posterior, nothing, Scales(), None, predictor, plan, examples, reference, scores)


def with_weights(model: nn.Module, weights: Mapping[str, Tensor]) -> nn.Module:
    """A copy of a network with other weights, which have to be those of the same layers.

    Raises:
        OtherNetwork: if they are not.
    """
    own = model.state_dict()
    there, here = ({name: f"{tuple(x.shape)}, {x.dtype}" for name, x in one.items()} for one in (weights, own))
    wrong = sorted(name for name in here.keys() | there.keys() if here.get(name) != there.get(name))
    if wrong:
        name = wrong[0]
        raise OtherNetwork(
            f'the network is not the one that was learned: "{name}" is {there.get(name, "missing")} in the '
            f"file and {here.get(name, 'missing')} in the network given."
        )
    found = copied(model)
    found.load_state_dict(weights)
    return found


def save_fit(
    fit: Fit,
    path: str | os.PathLike[str],
    *,
    examples: bool = True,
    extra: Mapping[str, Any] | None = None,
    given: Gaussian | None = None,
) -> None:
    """Write a fit as one file; see `Fit.save`. A caller may add plain values, and the prior as it was given."""
    speaks, given_up, reference, posterior = fit.predictor, None, fit.reference, fit.posterior
    if not examples:
        speaks, given_up = fit.predictor.without_examples()
        reference, posterior = reference and reference.without_features(), posterior.without_known()
        log.info("without its training examples the variance of an output changes by %.1e of it at most", given_up)
    plain, predictor = speaks.save()
    network = {name: x.detach() for name, x in fit.replicas.network.state_dict().items()}
    known, kept = to_known(reference), None
    parts = {"predictor": predictor, "network": network, "known": known.tensors}
    if fit.left_out is not None:
        parts["left_out"] = {"values": fit.left_out.values, "weights": fit.left_out.weights}
    if speaks.needs_examples:
        assert fit.examples is not None
        kept, parts["examples"] = _pack_examples(fit.examples)
    header = {
        "fit": type(fit.model).__name__,
        "trainable": [name for name, p in fit.replicas.network.named_parameters() if p.requires_grad],
        "count": fit.curvature.count,
        "plan": {"verb": fit.plan.verb, "ways": list(fit.plan.ways), "reasons": list(fit.plan.reasons)},
        "predictor": plain,
        "examples": kept,
        "known": dict(known.words),
        "without_examples": given_up,
        "extra": dict(extra or {}),
    }
    gaussians = {"prior": fit.prior.without_known(), "posterior": posterior} | (
        {} if given is None else {"given": given}
    )
    write_bundle(path, header, gaussians, parts)


@torch.inference_mode(False)
def load(path: str | os.PathLike[str], model: nn.Module | None = None, *, limit_bytes: int = LIMIT) -> Any:
    """What a file holds: a prior (`Gaussian`), or with the network that it is for, a `Fit`. No code in the file is run.

    Args:
        path: a file that `Gaussian.save` or `Fit.save` wrote.
        model: for a fit, a network with the same layers; a head on features needs none. It is not changed: the fit has a copy
            with the weights of the file.
        limit_bytes: files larger than this are refused before they are read.

    Returns:
        The `Gaussian`, the same to the last bit, or the `Fit`, which predicts as it did before.

    Raises:
        BadPriorFile: under the fitting name, if the file is damaged, cut short, too large, from a later version or of another
            kind, or the network is another one.

    Example:
        >>> prior = pt.load("letters.safetensors")
        >>> fit = pt.load("letters.fit", model)
    """
    if model is None:
        return _without_network(path, limit_bytes)
    check_network(model)
    manifest = read_manifest(path, limit_bytes=limit_bytes)
    with naming(Path(path)):
        return manifest.fit(model)


def _without_network(path: str | os.PathLike[str], limit_bytes: int) -> Any:
    """A prior, or a head on features, whose network follows from its file."""
    try:
        return load_gaussian(path, limit_bytes=limit_bytes)
    except NotAPrior as other:
        try:
            manifest = read_manifest(path, limit_bytes=limit_bytes)
        except NotAFit:
            raise other from None
        with naming(path):
            network = manifest.own_network()
        if network is None:
            raise
        with naming(path):
            return manifest.fit(network)


def read_manifest(path: str | os.PathLike[str], *, limit_bytes: int = LIMIT) -> FitManifest:
    """What a file of a fit says of it, every byte checked, before anything is built."""
    found = read_bundle(path, limit_bytes)
    with naming(path):
        if "fit" not in found.raw:
            raise NotAFit(
                "it holds no fit: `fit.save(path)` writes one. A prior is opened without a network: pt.load(path)."
            )
        return FitManifest(found.raw, found.tensors)


def handed_down(path: str | os.PathLike[str]) -> Gaussian:
    """What the next task begins with: the prior of a file, or the posterior of a fit's."""
    try:
        found = read_manifest(path)
    except NotAFit:
        return load_gaussian(path)
    with naming(Path(path)):
        return found.gaussian("posterior")


def _pack_examples(examples: TrainingSet) -> tuple[dict[str, Any], dict[str, Tensor]]:
    first = examples.inputs[0]
    whole = examples.whole
    inputs = dict(whole.named) if whole.named else {str(i): x for i, x in enumerate(whole.positional)}
    if odd := [name for name, x in inputs.items() if not isinstance(x, Tensor)]:
        raise NotStorable(
            f"the training examples have an input {odd[0]!r} that is no tensor: it has no place in a file."
        )
    tensors = {f"inputs/{name}": x for name, x in inputs.items()}
    tensors |= {"targets": examples.targets, "batch_targets": whole.targets}
    sizes = [batch.count for batch in examples.inputs]
    return {"batches": sizes, "named": bool(first.named), "outputs": examples.outputs}, tensors
