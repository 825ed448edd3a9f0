"""Posterior becomes prior inside one task: the first part of the data learns it, the rest certifies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from posterity.brief import brief
from posterity.checks import admitted
from posterity.data import Data
from posterity.errors import NoData
from posterity.gaussian import Gaussian
from posterity.pacbayes import Certificate, certify, gibbs_risk, optimise_posterior
from posterity.pacbayes.examples import CertificateData, rows_of
from posterity.workflow.fit import Fit
from posterity.workflow.learn import learn
from posterity.workflow.problem import kept_names

APART = "the split dealt every row to one side"
TEMPERATURES = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001)


@dataclass(frozen=True)
class RefinedPrior:
    """A prior refined on part of the data, and the rest, which it has not seen."""

    __repr__ = brief

    fit: Fit
    prior: Gaussian
    temperature: float
    """What the posterior of the first part was cooled by to become the prior: chosen on that part alone."""
    rest: Data
    groups: Tensor | None = None
    """What belongs together in the rest, where it was said."""

    def certify(
        self,
        confidence: float = 0.95,
        *,
        epochs: int = 0,
        optimising: Mapping[str, Any] | None = None,
        generator: torch.Generator | None = None,
        progress: bool = True,
        **options: Any,
    ) -> Certificate:
        """Certify by the rest; with `epochs`, a posterior that is first optimised for the bound on it.

        Args:
            confidence: as for `pt.certify`.
            epochs: of optimising; with none the prior itself is certified.
            optimising: further options of `pt.pacbayes.optimise_posterior`.
            generator: of the draws.
            progress: whether to show bars.
            options: further options of `pt.certify`.
        """
        posterior = self.prior
        if epochs:
            posterior = optimise_posterior(
                self.fit.model,
                self.prior,
                self.prior,
                self.rest,
                confidence=confidence,
                epochs=epochs,
                generator=generator,
                progress=progress,
                **(optimising or {}),
            )
        elif optimising:
            raise ValueError("options of optimising are for epochs=1 or more: without, nothing is optimised")
        return certify(
            self.fit.model,
            posterior,
            self.prior,
            self.rest,
            confidence,
            generator=generator,
            progress=progress,
            **{"groups": self.groups, "apart": APART} | options,
        )


def split_prior(
    model: nn.Module,
    data: Data,
    prior: Gaussian | None = None,
    *,
    groups: Tensor | None = None,
    share: float = 0.5,
    temperatures: tuple[float, ...] = TEMPERATURES,
    tolerance: float = 0.002,
    generator: torch.Generator | None = None,
    progress: bool = True,
    **learning: Any,
) -> RefinedPrior:
    """Refine the prior on a share of the data, in a random order, and keep the rest for certifying.

    The posterior of the share is often too wide for single draws to classify well, so it is cooled. From the coldest of the
    `temperatures` on, the next one is taken as long as its draws err at most `tolerance` more, on the share itself, than those of
    the coldest: a choice that the rest has no part in.

    Args:
        model: the network; it is trained.
        data: tensors, arrays, or a dataset with a length.
        prior: as for `learn`.
        groups: what belongs together, as for `pt.certify`: a group is on one side of the split. Near copies are, in any case.
        share: of the data that refines the prior.
        temperatures: to choose from; with none the posterior is taken as it is.
        tolerance: in 0-1 error.
        generator: of the order, the training and the draws.
        progress: whether to show bars.
        learning: further options of `learn`.
    Returns:
        A `RefinedPrior`: the fit on the share, the refined prior, and the rest of the data.
    Raises:
        NoData: if the share holds no example.

    Example:
        >>> refined = pt.split_prior(model, (x, y))
        >>> refined.certify(epochs=20).bound
    """
    if not 0 < share < 1:
        raise ValueError(f"the share of the data that refines the prior lies between 0 and 1, not {share}")
    names = learning.get("classes") or kept_names(prior, learning.get("head"))
    data, learning["classes"] = admitted(model, data, learning.get("likelihood"), None, names)
    seed = int(torch.randint(2**62, (), generator=generator))
    examples = CertificateData.of(data, groups=groups)
    dealt = torch.randperm(examples.n, generator=torch.Generator().manual_seed(seed))[examples.units]
    among = dealt < round(share * examples.n)
    if not bool(among.any()):
        raise NoData(f"a share of {share} leaves no example to refine the prior with.")
    # The rest in the order of the data, by which its certificate looks for dependence.
    sides = examples.order[among], examples.order[~among].sort().values
    first, rest = (rows_of(data, side) for side in sides)
    there = None if groups is None else groups[sides[1]]
    # Copies that were found belong together as groups do.
    here = None if groups is None and examples.n == examples.count else examples.units[among]
    fit = learn(model, first, prior, groups=here, generator=generator, progress=progress, **learning)
    wide = fit.posterior
    if not temperatures:
        return RefinedPrior(fit, wide, 1.0, rest, there)
    chosen, *warmer = sorted(temperatures)
    if warmer:
        options: dict[str, Any] = {"passes": 1, "generator": generator, "progress": progress}
        allowed = gibbs_risk(model, wide.tempered(chosen), first, **options).error + tolerance
        for t in warmer:
            if gibbs_risk(model, wide.tempered(t), first, **options).error > allowed:
                break
            chosen = t
    return RefinedPrior(fit, wide.tempered(chosen), chosen, rest, there)
