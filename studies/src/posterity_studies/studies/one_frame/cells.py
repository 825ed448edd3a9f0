"""Three updates in a row, for every block of LeNet-5: what each way of joining loses beside the exact sum."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from posterity.algebra import JointEigen, Kronecker, KroneckerSum, RotatedMatrix, in_one_frame, in_turned_frame, nearest
from posterity.blocks import Block, find_blocks
from posterity.curvature import KFAC, estimate
from posterity.lenet import lenet5
from posterity_studies.engine.declaration import Arguments, Values
from posterity_studies.shared.priors import start_at
from posterity_studies.shared.sources import Recipe, data_set, learned_prior, source_curvature
from posterity_studies.studies.one_frame.methods import (
    ExactSum,
    FrameMatrix,
    best_frame,
    kl,
    least_ratio,
    log_det,
    variances,
)

UPDATES = 3


def source(arguments: Arguments) -> Recipe:
    return Recipe("notmnist", arguments["examples"], 1.0)


def cell(arguments: Arguments, generator: torch.Generator) -> Values:
    """Log det, KL, predictive variance and least ratio to the prior, by update, block and way."""
    learned = learned_prior(source(arguments))
    model = lenet5()
    start_at(model, learned)
    blocks = find_blocks(model)
    x, y = data_set("mnist").train
    count = arguments["images"]
    kept = torch.randperm(len(x), generator=torch.Generator().manual_seed(arguments["seed"]))
    targets = [
        estimate(model, (x[some], y[some]), KFAC(), generator=generator, progress=False)
        for some in kept[: UPDATES * count].split(count)
    ]
    test = data_set("mnist").test[0][: arguments["tested"]]
    gradients = _gradients(model, blocks, test, generator)
    values: dict[str, Any] = {}
    for name in arguments["blocks"]:
        first = _double(source_curvature(learned, name)) * arguments["share"]
        terms = [first, *(_double(target[name]) for target in targets)]
        for key, found in _block(terms, arguments, gradients[name], generator).items():
            values[f"{name} {key}"] = float(f"{found:.6g}")
    return values


def _block(terms: list[Kronecker], arguments: Arguments, g: Tensor, generator: torch.Generator) -> dict[str, float]:
    """One block over all updates. Each way goes on from what it had; the search for the best frame sees all terms."""
    (out, inp), gamma = terms[0].shape, arguments["gamma"]
    eye = Kronecker(gamma * torch.eye(out, dtype=torch.float64), torch.eye(inp, dtype=torch.float64))
    pair, apart = nearest(KroneckerSum([terms[0], eye])), terms[0]
    frame = turned = in_one_frame([terms[0]])
    values: dict[str, float] = {}
    for k in range(1, len(terms)):
        before, exact = ExactSum(terms[:k], gamma), ExactSum(terms[: k + 1], gamma)
        pair, apart = nearest(KroneckerSum([pair, terms[k]])), nearest(KroneckerSum([apart, terms[k]]))
        frame, turned = in_one_frame([frame, terms[k]]), in_turned_frame([turned, terms[k]], gamma)
        assert isinstance(frame, JointEigen)
        assert isinstance(turned, JointEigen | RotatedMatrix)
        ways = {
            "pair": FrameMatrix.of_pair(pair),
            "floor": FrameMatrix.of_pair(apart, gamma),
            "frame": FrameMatrix.of_frame(frame, gamma),
            "turned": FrameMatrix.of_frame(turned, gamma),
        }
        if arguments["searched"]:
            ways["best"] = best_frame(exact, ways["frame"])
        # The closest is the best start: what is left to estimate, and its error, are least there.
        whole, error = log_det(exact, ways["turned"], generator)
        truth = variances(exact, ways["turned"], g)
        values[f"{k} exact logdet"] = whole / (out * inp)
        values[f"{k} exact error"] = error
        values[f"{k} turned directions"] = len(turned.index) if isinstance(turned, RotatedMatrix) else 0
        for way, found in ways.items():
            spread = (found.turned(g).square() / found.values).sum((1, 2))
            values[f"{k} {way} logdet"] = found.logdet / (out * inp)
            values[f"{k} {way} kl"] = kl(found, exact, whole)
            values[f"{k} {way} variance"] = float((spread / truth - 1).abs().mean())
            values[f"{k} {way} ratio"] = least_ratio(found, before, generator)
    return values


def _double(pair: Any) -> Kronecker:
    assert isinstance(pair, Kronecker)
    return Kronecker(pair.left.double(), pair.right.double())


def _gradients(model: nn.Module, blocks: dict[str, Block], x: Tensor, generator: torch.Generator) -> dict[str, Tensor]:
    """The gradient of one output for every test image, drawn at random, by every block."""
    found: dict[str, list[Tensor]] = {name: [] for name in blocks}
    parameters = dict(model.named_parameters())
    for image in x:
        model.zero_grad()
        model(image[None])[0, int(torch.randint(10, (), generator=generator))].backward()
        for name, block in blocks.items():
            grads = {role: parameters[full].grad for role, full in block.parameters.items()}
            found[name].append(block.layer.read(grads).double().clone())  # type: ignore[arg-type]
    model.zero_grad()
    return {name: torch.stack(parts) for name, parts in found.items()}
