"""How wide and how soft a column's predictive is, by leave-one-out on its own training examples.

Earlier columns stand at their means, so outputs depend on the new blocks alone, and no validation data is needed.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from posterity.blocks import Replica, evaluating, find_blocks, named, read_blocks
from posterity.checks import check_groups
from posterity.curvature import Likelihood
from posterity.data.batches import Batch, batches
from posterity.data.leave_out import LeaveOut
from posterity.errors import BadData, DidNotConverge, InconsistentPosterior
from posterity.gaussian import Gaussian
from posterity.kernel import BlockFrame, Calibration, LeaveOneOut, LinearisedNetwork, OutputKernel, calibrate, jacobian
from posterity.kernel.left_out import without_themselves
from posterity.predictive.linearised import output_moments
from posterity.progressive.network import Network
from posterity.progressive.task import Task

log = logging.getLogger("posterity")

TAUS = (1e-6, 1e-5, 1e-4, 1e-3, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
"""Multiples of a column's posterior covariance. The least is as good as none, and still a Gaussian that can be drawn from."""
SIDE = 3000
"""The largest number of examples times outputs for the exact posterior; beyond it the structured one is left out from."""
WRITTEN = 1 << 29
"""The largest number of examples times outputs times weights: a bound on the gradients that are written out."""
LOOKED_AT = 500
"""Training examples that are left out of a structured posterior."""


def column_calibration(
    network: Network,
    prior: Gaussian,
    posterior: Gaussian,
    task: Task,
    taus: Sequence[float] = TAUS,
    batch_size: int = 256,
) -> tuple[Calibration, float]:
    """The (τ, T) of least leave-one-out NLL, and that NLL.

    From the exact posterior of the new blocks, in function space, where that fits, else from the structured one.
    `network` runs earlier columns at their means and stands at the mode of the new blocks. Where no posterior is consistent
    with its own examples, predictions are the network's own: the least τ, and T = 1.
    """
    device, likelihood = next(network.parameters()).device, task.likelihood
    taken = [batch.to(device) for batch in batches(task.train, batch_size)]
    with evaluating(network):
        targets = torch.cat([likelihood.check(b.outputs(network).detach(), b.targets)[1] for b in taken])
        outputs = taken[0].outputs(network).detach()
        check_groups(task.groups, len(targets))
        leave_out = LeaveOut.of(targets, task.groups)
        for estimate in (_exact, _structured):
            try:
                left_out = estimate(network, prior, posterior, taken, outputs, targets, likelihood, leave_out)
            except (InconsistentPosterior, DidNotConverge, BadData) as error:
                log.info("leave-one-out of a column, %s: %s", estimate.__name__.strip("_"), error)
                continue
            if left_out is not None:
                judged = leave_out.judged[leave_out.judged < len(left_out.mean)]
                if not len(judged):
                    break
                return calibrate(left_out.part(judged), likelihood, targets[judged], taus=taus)[:2]
    return Calibration(min(taus), 1.0), math.inf


def _exact(
    network: Network,
    prior: Gaussian,
    posterior: Gaussian,
    taken: list[Batch],
    outputs: Tensor,
    targets: Tensor,
    likelihood: Likelihood,
    leave_out: LeaveOut,
) -> LeaveOneOut | None:
    """Left-out NLL of the network made linear in its new blocks: None where it does not fit into memory."""
    rows = len(targets) * outputs.shape[-1]
    if outputs.ndim != 2 or rows > SIDE or rows * prior.size > WRITTEN:
        return None
    blocks = find_blocks(network, named(prior.mean))
    frames = {name: BlockFrame.of(prior.precision[name]) for name in blocks}
    point = read_blocks(network, blocks)
    train = jacobian(network, blocks, point, frames, taken)
    shift = {name: frames[name].turned((prior.mean[name].to(point[name]) - point[name]).double()) for name in blocks}
    linearised = LinearisedNetwork(OutputKernel(frames), train, targets, likelihood, outputs.shape[1], shift)
    return linearised.posterior(None).left_out(leave_out.lots(outputs.shape[1]))


def _structured(
    network: Network,
    prior: Gaussian,
    posterior: Gaussian,
    taken: list[Batch],
    outputs: Tensor,
    targets: Tensor,
    likelihood: Likelihood,
    leave_out: LeaveOut,
) -> LeaveOneOut | None:
    """Left-out NLL by the Gaussian over the new blocks, at some of the examples, one by one."""
    if outputs.ndim != 2:
        return None
    means, covariances, count, replica = [], [], 0, Replica(network)
    for batch in taken:
        mean, covariance = output_moments(replica, posterior, batch)
        means.append(mean.double())
        covariances.append(covariance)
        count += batch.count
        if count >= LOOKED_AT:
            break
    seen = LeaveOneOut(torch.cat(means), torch.cat(covariances))
    return without_themselves(seen, likelihood, targets[: len(seen.mean)])
