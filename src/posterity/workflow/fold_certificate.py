"""A certificate for few examples with a new head: learn several times, and measure the error on the part left out.

After a new head the prior's mean knows no class, and every bound that starts from the prior is empty. A fit that was learned
without some examples may be anything at all: those examples are plain test data for it. The bound is on a predictor that takes
one of the fits, drawn again for every input. It is that of each fit by Clopper and Pearson, with its part of δ, averaged. The
predictions are those of `fit.predict`: the whole posterior, which other certificates do not speak of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from posterity.bars import track
from posterity.blocks.replicas import copied
from posterity.brief import brief
from posterity.checks import admitted
from posterity.curvature import Categorical, Likelihood
from posterity.data import Data
from posterity.data.batches import batches
from posterity.errors import NoData, WrongChoice
from posterity.gaussian import Gaussian
from posterity.pacbayes import Certificate
from posterity.pacbayes.bounds import Spending
from posterity.pacbayes.certificate import FOLDS
from posterity.pacbayes.certify import written
from posterity.pacbayes.examples import CertificateData, error_by_unit, rows_of
from posterity.pacbayes.methods import Case, bounded, by_parts, counted_errors
from posterity.pacbayes.refusals import checked, unseen
from posterity.workflow.fit import Fit
from posterity.workflow.learn import adapt, learn
from posterity.workflow.predict_certificate import wrong_of
from posterity.workflow.problem import Head, Problem


@dataclass(frozen=True, eq=False)
class Folds:
    """Fits that were learned without a part each, and the certificate of a predictor that takes one of them at random."""

    __repr__ = brief

    fits: tuple[Fit, ...]
    certificate: Certificate

    def predict(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """The classes of some inputs, each by a fit that is drawn for it: what the certificate speaks of."""
        classes = torch.stack([fit.predict(x).probs.argmax(1) for fit in self.fits])
        drawn = torch.randint(len(self.fits), (classes.shape[1],), generator=generator)
        return classes[drawn, torch.arange(classes.shape[1])]


def certify_folds(
    model: nn.Module,
    prior: Gaussian,
    data: Data,
    confidence: float = 0.95,
    likelihood: Likelihood | None = None,
    *,
    groups: Tensor | None = None,
    folds: int = 3,
    learner: Literal["learn", "adapt"] = "learn",
    classes: Sequence[str] | None = None,
    head: Head | None = None,
    grid: int = 1,
    vouched: str | None = None,
    batch_size: int = 256,
    generator: torch.Generator | None = None,
    progress: bool = True,
    **learning: Any,
) -> Folds:
    """Learn from few examples without a part each time, and bound the error of one of the fits, drawn again, by those parts.

    Costs as many fits as there are folds. Which example is in which part is random and knows nothing of labels. Strengths and
    temperatures are chosen again without the part, so there is nothing to pay for them.

    Args:
        model: the network that the prior is for; it comes out as it went in.
        prior: a learned prior that has not seen the data.
        data: a pair of tensors, or a dataset with a length.
        confidence: with which the bound holds.
        likelihood: of the outputs; `Categorical()`, which is the default.
        groups: what belongs together, as for `pt.certify`: a group is in one part, and n counts groups.
        folds: how many parts. With more parts each fit learns from more examples, and is tested on fewer.
        learner: "learn" trains networks beside the exact posterior, "adapt" does not and takes a second.
        classes: the names of the classes, as for `learn`.
        head: "keep" or "new", as for `learn`.
        grid: how many priors the choice was from, beyond what the library knows of.
        vouched: a text by which you answer for a prior of unknown past; the certificate prints it.
        batch_size: examples at a time.
        generator: of the parts and of learning; by default its seed follows from prior and examples.
        progress: whether to show a bar.
        learning: further options of `learn` or `adapt`.
    Returns:
        A `Folds`: the fits, and their certificate.
    Raises:
        NoCertificate: under the fitting name, if the bound would not hold.
        BadData: if examples come in batches only.

    Example:
        >>> found = pt.certify_folds(model, prior, (x, y), classes=names, learner="adapt")
        >>> found.certificate.bound
    """
    if folds < 2:
        raise ValueError(f"there are at least 2 folds, not {folds}: one would leave nothing to learn from")
    if learner not in ("learn", "adapt"):
        raise ValueError(f'learner is "learn" or "adapt", not "{learner}"')
    if odd := {"prior", "data", "model", "validation"} & learning.keys():
        raise ValueError(f"{sorted(odd)[0]} cannot be an option of learning here: what is left out must stay unseen")
    data, classes = admitted(model, data, likelihood, None, classes)
    likelihood = likelihood or Categorical()
    if not isinstance(likelihood, Categorical):
        raise WrongChoice("errors are counted for classes alone: likelihood=Categorical(), the default.")
    examples = CertificateData.of(data, batch_size, groups)
    if examples.n < folds:
        raise NoData(f"{examples.n} {'groups' if examples.grouped else 'examples'} cannot be cut into {folds} parts.")
    # Copies are in one part together, and count as one: no fit is tested by a copy of what it has seen.
    units = torch.empty_like(examples.units)
    units[examples.order] = examples.units
    grouped = examples.n < examples.count
    together = units if grouped else groups
    task = Problem.of(
        model, data, likelihood, prior=prior, classes=classes, head=head, groups=together, batch_size=batch_size
    )
    found = checked(model, task.prior, task.prior, examples, Spending(1 - confidence), grid, vouched, generator)
    generator = found.generator
    shuffled = torch.randperm(examples.n, generator=generator, device=generator.device).cpu().tensor_split(folds)
    # Rows of each part in the examples' own order, whatever order they came in.
    parts = [examples.order[torch.isin(examples.units, part)] for part in shuffled]
    options: dict[str, Any] = {"classes": classes, "head": head, "progress": False, "generator": generator} | learning
    fits, counts = [], []
    for number, out in track(list(enumerate(parts)), folds, "folds", progress):
        kept = torch.cat([part for other, part in enumerate(parts) if other != number])
        twin = copied(model)
        # Nothing of what the network may have learned before: the prior's own mean, and a head that knows no class.
        task.prior.write_to(twin)
        options["groups"] = None if together is None else together[kept]
        fit = (
            learn(twin, rows_of(data, kept), prior, likelihood, **options)
            if learner == "learn"
            else adapt(twin, rows_of(data, kept), prior, likelihood, **options)
        )
        # Whatever the options of learning have let in: a fit that has seen its part, or may have, is refused.
        part = CertificateData.of(rows_of(data, out), batch_size, look=False)
        unseen(
            fit.posterior, replace(part, few_values=examples.few_values), vouched, "a fit", "by their place in the data"
        )
        fits.append(fit)
        wrong = wrong_of(fit, batches(rows_of(data, out), batch_size)).double()
        error, n = error_by_unit(wrong, units[out], examples.grouped)
        counts.append((counted_errors(error, n, grouped), n))
    case = Case.at_prior(model, found, task.prior, examples.n, likelihood, batch_size=batch_size)
    beside = bounded("mean", case, examples.readings())
    examples = replace(examples, grouped=grouped)
    notes = (*found.notes, f"each of {folds} fits was learned without the examples that measure its error")
    certificate = written(
        by_parts(counts, case, grouped, FOLDS),
        case,
        examples,
        beside,
        notes,
        confidence,
    )
    return Folds(tuple(fits), certificate)
