"""A certificate of what `fit.predict` says, where the fit has learned nothing from the examples: they are plain test data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from posterity.checks import admitted
from posterity.data import Data
from posterity.data.batches import Batch
from posterity.errors import NoCertificate
from posterity.gaussian.card import KnownFeatures
from posterity.novelty import to_known
from posterity.pacbayes import Certificate
from posterity.pacbayes.bounds import Spending
from posterity.pacbayes.certificate import ITSELF
from posterity.pacbayes.certify import written
from posterity.pacbayes.examples import CertificateData, error_by_unit
from posterity.pacbayes.methods import Case, bounded, plain
from posterity.pacbayes.refusals import checked, unseen

if TYPE_CHECKING:
    from posterity.workflow.fit import Fit


def certify_predictions(
    fit: Fit,
    data: Data,
    confidence: float,
    *,
    groups: Tensor | None = None,
    grid: int = 1,
    batch_size: int = 256,
    generator: torch.Generator | None = None,
) -> Certificate | None:
    """Bound the error of the fit's own predictions; None where the fit has seen the examples, or may have."""
    data, _ = admitted(fit.model, data, fit.likelihood)
    try:
        unseen(
            replace(fit.posterior, known=known_of(fit)), CertificateData.of(data, batch_size, groups, look=False), None
        )
        examples = CertificateData.of(data, batch_size, groups)
        spending = Spending(1 - confidence)
        found = checked(fit.model, fit.posterior, fit.posterior, examples, spending, grid, None, generator)
    except NoCertificate:
        return None
    case = Case.at_prior(fit.model, found, fit.posterior, examples.n, fit.likelihood, batch_size=batch_size)
    error, _ = error_by_unit(wrong_of(fit, examples.batches).double(), examples.units, examples.grouped)
    # Where copies were found, families are tested as groups are.
    whole = replace(examples, grouped=examples.grouped or examples.n < examples.count)
    beside = bounded("mean", case, examples.readings())
    notes = (*found.notes, "what stands for the prior here is the fit itself: it learned nothing from these examples")
    return written(plain(error, case, whole.grouped, ITSELF), case, whole, beside, notes, confidence)


def known_of(fit: Fit) -> KnownFeatures:
    """Inputs that a fit keeps of those that it learned from."""
    return fit.posterior.known or to_known(fit.reference or getattr(fit.predictor, "reference", None))


def wrong_of(fit: Fit, held: Iterable[Batch]) -> Tensor:
    """Which examples a fit classifies wrongly. An input whose probabilities are no numbers is wrong."""
    wrong = []
    for batch in held:
        probs = fit.predict(batch.positional[0] if batch.positional else dict(batch.named)).probs.cpu()
        probs, targets = fit.likelihood.check(probs, batch.targets.cpu())
        wrong.append((probs.argmax(1) != targets) | ~probs.isfinite().all(1))
    return torch.cat(wrong)
