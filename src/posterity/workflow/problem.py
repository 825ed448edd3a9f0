"""What a fit is made from: a network, its data read once, a prior that fits, and what is left out together."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor, nn
from torch.utils.data import RandomSampler, SubsetRandomSampler, WeightedRandomSampler

from posterity.blocks import Block, Selection, evaluating, find_blocks, named
from posterity.blocks.replicas import check_copyable
from posterity.checks import check_groups
from posterity.curvature import Bernoulli, Categorical, GaussianNoise, Likelihood
from posterity.data import Data
from posterity.data.batches import Workers, batches, is_pair, known_length
from posterity.data.examples import TrainingSet, read_up_to
from posterity.data.hashes import batch_hashes
from posterity.data.leave_out import LeaveOut
from posterity.data.near_copies import families
from posterity.data.provenance import Provenance, past_of
from posterity.data.weights import looks_new
from posterity.errors import BadData, BadTargets, DependentExamples, UnsupportedLayer, UnsupportedNetwork
from posterity.gaussian import Gaussian
from posterity.gaussian.gaussian import check_frozen
from posterity.kernel.last_layer import features_of
from posterity.laplace import fitted, isotropic
from posterity.laplace.prior import head_name
from posterity.workflow.recipe import Limits

log = logging.getLogger("posterity")
Head = Literal["keep", "new"]
ENOUGH = 100
"""Examples from which on the default prior has the precision 1."""


@dataclass(frozen=True, eq=False)
class Problem:
    """A network, data and a prior for it. The data is read once, and every question about it is answered once."""

    model: nn.Module
    data: Data
    likelihood: Likelihood
    classes: Sequence[str] | None
    prior: Gaussian
    """As it fits the network: with an isotropic prior for a head that is new."""
    given: Gaussian | None
    """As the user gave it."""
    examples: TrainingSet | None
    """In memory; None where they are too many or too large, outputs have positions, or several processes share them."""
    new_head: str | None
    """The name of a head that the learned prior does not have."""
    groups: Tensor | None
    batch_size: int
    limits: Limits = Limits()  # noqa: RUF009 (frozen)

    @classmethod
    def of(
        cls,
        model: nn.Module,
        data: Data,
        likelihood: Likelihood,
        *,
        prior: Gaussian | None = None,
        classes: Sequence[str] | None = None,
        head: Head | None = None,
        head_precision: float = 1.0,
        blocks: Selection = None,
        precision: float | None = None,
        groups: Tensor | None = None,
        batch_size: int = 256,
        limits: Limits | None = None,
    ) -> Problem:
        """Read the data and fit the prior to the network.

        The default prior has precision 1, and less with fewer than a hundred examples: under a precision of 1, ten examples
        cannot hold the weights of a network away from zero, and it predicts the same for all inputs.
        """
        if head not in (None, "keep", "new"):
            raise ValueError(f'head is "keep", "new" or None, not "{head}"')
        limits = limits or Limits()
        check_copyable(model)
        _check_readable(data, groups)
        examples = _read(model, data, likelihood, batch_size, limits)
        if examples is not None:
            check_groups(groups, examples.count)
            groups = _families(examples) if groups is None else groups
            _check_names(classes, examples.outputs, likelihood)
        if prior is None:
            usual = 1.0 if examples is None else min(1.0, examples.count / ENOUGH)
            own = isotropic(model, usual if precision is None else precision, blocks=blocks)
            return cls(model, data, likelihood, classes, own, None, examples, None, groups, batch_size, limits)
        learned = is_learned(prior)
        new = is_new_head(prior, learned, likelihood, classes, head)
        own = fitted(prior, model, head_precision, new_head=new)
        if learned:
            check_frozen(own, model)
        name = head_name(model)
        kept = name is not None and own.mean.get(name) is prior.mean.get(name)
        new_head = name if learned and name in own.mean and not kept else None
        return cls(model, data, likelihood, classes, own, prior, examples, new_head, groups, batch_size, limits)

    @property
    def learned(self) -> bool:
        """Whether the prior was learned from anything."""
        return self.given is not None and is_learned(self.given)

    @property
    def few(self) -> TrainingSet | None:
        """All examples, if they are few enough for the exact posterior."""
        found, new = self.examples, self.new_head is not None
        return found if found is not None and self.limits.exact(found.count, found.outputs, new) else None

    @cached_property
    def work(self) -> float:
        """Products of a forward pass over all examples: what curvature of all layers costs some fifty times."""
        held = None if self.examples is None else self.examples.inputs[0]
        if (first := held or next(iter(batches(self.again, 1)), None)) is None:
            return 0.0
        found: list[float] = []

        def count(module: nn.Module, _: object, out: object) -> None:
            weight = module.weight
            if isinstance(weight, Tensor) and weight.ndim > 1 and isinstance(out, Tensor):
                found.append(weight.numel() * out.numel() / weight.shape[0])

        layers = [m for m in self.model.modules() if "weight" in m._parameters]
        hooks = [layer.register_forward_hook(count) for layer in layers]
        try:
            with torch.no_grad(), evaluating(self.model):
                one = first.rows(torch.arange(1)).to(next(self.model.parameters()).device)
                one.outputs(self.model)
        finally:
            for hook in hooks:
                hook.remove()
        return sum(found) * self.size()[0]

    @property
    def has_every_class(self) -> bool:
        """Whether targets are classes, and the examples have all that the network has outputs for."""
        found = self.examples
        return (
            found is not None
            and isinstance(self.likelihood, Categorical)
            and len(found.targets.unique()) == found.outputs > 1
        )

    @cached_property
    def last_layer(self) -> str | None:
        """The layer whose outputs are the network's, one vector an example, on top of others; None where there is none."""
        name = head_name(self.model)
        if self.examples is None or name is None or name not in self.prior.mean or len(self.prior.mean) < 2:
            return None
        try:
            features_of(self.model, name, self.examples.inputs[0].rows(torch.arange(1)))
        except UnsupportedLayer:
            return None
        return name

    @cached_property
    def leave_out(self) -> LeaveOut:
        """What is left out together."""
        assert self.examples is not None
        return LeaveOut.of(self.examples.targets, self.groups)

    @cached_property
    def seen(self) -> Provenance:
        """The examples of the task."""
        if self.examples is None:
            return Provenance.of(self.data)
        try:
            return Provenance.read(self.data, torch.cat([batch_hashes(batch) for batch in self.examples.inputs]))
        except BadData as error:
            return Provenance.unknown(f"the data cannot be distinguished: {error}")

    @property
    def again(self) -> Data:
        """The data for further passes: from memory, where it is the same at each reading."""
        if self.examples is None or is_pair(self.data) or not self.seen.is_known:
            return self.data
        return self.examples.data

    @cached_property
    def is_new_network(self) -> bool:
        """Whether the weights are as torch starts them."""
        return not past_of(self.model).count and looks_new(self.model)

    @property
    def is_untouched(self) -> bool:
        """Whether nothing has trained it, for all that can be seen: a few steps leave weights where torch starts them."""
        return self.is_new_network and past_of(self.model).is_known

    @property
    def is_plain(self) -> bool:
        """Whether nothing but the weights of the blocks would have to be trained."""
        return is_plain(self.model, self.blocks)

    @property
    def blocks(self) -> dict[str, Block]:
        """The layers that have a prior."""
        return find_blocks(self.model, named(self.prior.mean))

    @property
    def is_table(self) -> bool:
        """Whether inputs are rows of numbers, with one number for each, or a class, all of which are there."""
        found = self.examples
        if found is None or isinstance(self.likelihood, Bernoulli) or getattr(self.likelihood, "per_input", False):
            return False
        rows = found.inputs[0].positional
        flat = len(rows) == 1 and isinstance(rows[0], Tensor) and rows[0].ndim == 2 and rows[0].is_floating_point()
        outputs = 1 if self.is_regression else len(found.targets.unique())
        return flat and found.outputs == outputs

    @property
    def is_regression(self) -> bool:
        """Whether targets are numbers."""
        return isinstance(self.likelihood, GaussianNoise)

    @property
    def learns_noise(self) -> bool:
        """Whether it is a regression whose noise is not given."""
        return isinstance(self.likelihood, GaussianNoise) and self.likelihood.is_learned

    def size(self) -> tuple[int, int]:
        """(examples, outputs) as far as they can be known without reading everything."""
        if self.examples is not None:
            return self.examples.count, self.examples.outputs
        count = len(self.data[0]) if is_pair(self.data) else known_length(self.data) or 0
        return count, list(self.prior.mean.values())[-1].shape[0]


def is_plain(model: nn.Module, blocks: Mapping[str, Block]) -> bool:
    """Whether a network has no trainable weights outside its blocks, and no running statistics."""
    inside = {full for block in blocks.values() for full in block.parameters.values()}
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    return trained <= inside and not any(getattr(module, "track_running_stats", False) for module in model.modules())


def kept_names(prior: Gaussian | None, head: Head | None) -> Sequence[str] | None:
    """The names of a head that is kept: its outputs stand in their order, whichever of them the data has."""
    return (prior.card.classes or None) if prior is not None and head == "keep" else None


def _check_names(classes: Sequence[str] | None, outputs: int, likelihood: Likelihood) -> None:
    if classes is None or not isinstance(likelihood, Categorical) or len(classes) == outputs:
        return
    raise BadTargets(
        f"there are {len(classes)} names of classes ({', '.join(list(classes)[:8])}{' …' if len(classes) > 8 else ''}) and the "
        f"network has {outputs} outputs: give classes= a name for each output, in their order, or build the network for "
        f"{len(classes)}."
    )


def is_learned(prior: Gaussian) -> bool:
    """Whether a prior was learned from anything."""
    return any(bool(mean.any()) for mean in prior.mean.values())


def is_new_head(
    prior: Gaussian, learned: bool, likelihood: Likelihood, classes: Sequence[str] | None, head: Head | None
) -> bool | None:
    """Whether the head starts from scratch: as the user says, else by the names of the classes, else where its size differs."""
    if head is not None:
        return head == "new"
    if not isinstance(likelihood, Categorical) or not learned:
        return None
    same = classes is not None and tuple(classes) == prior.card.classes
    if not same:
        log.info("the head is new: the prior's card does not name the classes of this task (head='keep' keeps it)")
    return not same


def _families(examples: TrainingSet) -> Tensor | None:
    """What belongs together though no one said so: copies, which would answer for each other where one of them is left out."""
    found = families(examples.whole.tensors(), examples.targets.cpu())
    if found is not None:
        warnings.warn(
            f"{examples.count:,} examples are {int(found.max()) + 1:,} families of copies, exact or near: each family is left "
            "out as a whole, as with groups=.",
            DependentExamples,
            stacklevel=5,
        )
    return found


def _check_readable(data: Data, groups: Tensor | None) -> None:
    """Refuse data that is used up by one reading, or whose order is not that of the groups."""
    if isinstance(data, Iterator):
        raise BadData(
            f"data is a {type(data).__name__}, used up after one reading: give a DataLoader, a Dataset or a list."
        )
    if groups is not None and isinstance(
        getattr(data, "sampler", None), RandomSampler | SubsetRandomSampler | WeightedRandomSampler
    ):
        raise BadData(
            "groups are in the order of the examples, and this DataLoader has them in another order at each reading: give its "
            "dataset, or a DataLoader with shuffle=False."
        )


@torch.no_grad()
def _read(model: nn.Module, data: Data, likelihood: Likelihood, batch_size: int, limits: Limits) -> TrainingSet | None:
    """The data in memory; None if there is too much of it, or outputs have positions."""
    if Workers.here().size > 1:
        return None
    kept = read_up_to(data, batch_size, limits.examples, limits.numbers, next(model.parameters()).device)
    if kept is None:
        return None
    with evaluating(model):
        outputs = kept[0].outputs(model)
    if isinstance(likelihood, Categorical) and outputs.ndim == 2 and outputs.shape[1] == 1:
        raise UnsupportedNetwork(
            "the network has one output, and classes need one each: give likelihood=pt.Bernoulli() for 0/1 labels, "
            "likelihood=pt.GaussianNoise() for numbers, or the network an output for every class."
        )
    outputs, _ = likelihood.check(outputs, kept[0].targets)
    if outputs.ndim != 2:
        return None
    targets = torch.cat([batch.targets for batch in kept])
    # Classes as torch indexes by them; numbers, or answers, in a row as outputs are.
    targets = targets.long() if isinstance(likelihood, Categorical) else targets.view(len(targets), -1)
    return TrainingSet(kept, targets, outputs.shape[1])
