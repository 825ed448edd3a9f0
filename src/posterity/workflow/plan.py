"""How a fit is made: the one place that decides, and says why.

`Facts` is all that the decision depends on; `choose_plan` is the only if-tree. A plan names its ways (`posterity.workflow.ways`),
which left-out examples weigh against each other, and prints its reasons in `repr(fit)` and on the command line.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Literal

from posterity.errors import WrongChoice
from posterity.workflow.problem import Problem
from posterity.workflow.recipe import InputModels, Limits
from posterity.workflow.ways.candidate import IN_FUNCTION_SPACE, Options

Verb = Literal["learn", "adapt", "posterior", "head"]
Way = Literal[
    "exact around the prior",
    "networks from the prior",
    "head alone",
    "prior alone",
    "networks from scratch",
    "small networks",
    "one network",
    "last layer",
    "structured",
    "structured, last layer",
    "network aside",
    "linear on the inputs",
    "Gaussian process on the inputs",
    "forest on the inputs",
    "boosted trees on the inputs",
    "head",
]


@dataclass(frozen=True)
class Facts:
    """What the decision depends on, known before anything is learned."""

    verb: Verb
    examples: int | None
    """How many are held in memory; None where they are too many or too large, or outputs have positions."""
    outputs: int
    regression: bool
    weights: int
    """Of the network."""
    learns_noise: bool = False
    noise_per_input: bool = False
    prior: Literal["default", "isotropic", "learned"] = "default"
    new_head: bool = False
    criterion: str = "loo"
    trained_as_asked: bool = False
    """Whether `training=` or `validation=` was given: other networks beside the one asked for would be others."""
    trains: bool = True
    """Whether networks are trained beside an exact posterior."""
    new_network: bool = True
    """Whether its weights are as torch starts them."""
    plain_network: bool = True
    """Whether it has no trainable weights outside its blocks, and no running statistics."""
    as_asked: bool = False
    """Whether the exact posterior was asked for by its details (shares=, inference=): others would speak beside it."""
    has_head: bool = False
    """Whether classes, each of them with an example, are read off one last layer."""
    can_leave_out: bool = True
    same_again: bool = True
    """Whether examples are the same at each reading."""
    last_layer: int | None = None
    """The inputs of a last layer that is uncertain alone, everything else staying as it is; None for anything else."""
    products: float = 0.0
    """Of a forward pass over all examples; known where the layers of a trained network are not chosen by the user."""
    no_last_layer: str = "several layers are uncertain, or an estimator was given"
    """Why there is none."""
    limits: Limits = Limits()  # noqa: RUF009 (frozen)
    inputs: InputModels | None = None
    """The limits of models of the inputs; None where they are no candidates."""
    trees: bool = True
    """Whether scikit-learn, which grows them, is installed."""
    closed_form: bool = True
    """Whether the noise of a regression is learned with nothing else given: the only way that an exact last layer knows."""

    @property
    def few(self) -> bool:
        """Whether the exact posterior is within reach."""
        return self.examples is not None and self.limits.exact(self.examples, self.outputs, self.new_head)


@dataclass(frozen=True)
class Plan:
    """The ways that make a fit, and the reasons for them."""

    verb: Verb
    ways: tuple[Way, ...]
    reasons: tuple[str, ...]

    def but(self, reason: str) -> Plan:
        """The plan with notes on what happened."""
        return replace(self, reasons=(*self.reasons, reason))

    def instead(self, way: Way, reason: str) -> Plan:
        """Another way, because the planned one failed for a stated reason."""
        return replace(self, ways=(way,), reasons=(*self.reasons, reason))

    def __str__(self) -> str:
        return " + ".join(self.ways) + "".join(f"\n    {reason}" for reason in self.reasons)


def facts_of(verb: Verb, problem: Problem, options: Options, last: int | str | None = None) -> Facts:
    """The facts of a problem whose data has been read; `last`: the inputs of a last layer, or why there is none."""
    prior: Literal["default", "isotropic", "learned"] = "default"
    if problem.given is not None:
        prior = "learned" if problem.learned else "isotropic"
    found = problem.examples
    return Facts(
        verb,
        None if found is None else found.count,
        problem.size()[1],
        regression=problem.is_regression,
        weights=sum(p.numel() for p in problem.model.parameters()),
        prior=prior,
        new_head=problem.new_head is not None,
        criterion=options.criterion,
        trained_as_asked=bool(options.training),
        trains=options.trains,
        new_network=problem.is_new_network,
        plain_network=problem.is_plain,
        as_asked=options.shares is not None or options.inference is not None,
        has_head=problem.last_layer is not None
        and (verb == "posterior" or (problem.learned and problem.has_every_class)),
        can_leave_out=found is not None and bool(len(problem.leave_out.judged)),
        same_again=found is not None and problem.seen.is_known,
        last_layer=last if isinstance(last, int) else None,
        no_last_layer=last if isinstance(last, str) else Facts.no_last_layer,
        products=problem.work if verb == "posterior" and last is None and options.estimator is None else 0.0,
        limits=problem.limits,
        learns_noise=problem.learns_noise,
        noise_per_input=getattr(problem.likelihood, "per_input", False),
        closed_form=options.precision is None and options.validation is None,
        inputs=options.recipe.inputs if options.candidates == "all" and problem.is_table else None,
        trees=find_spec("sklearn") is not None,
    )


def choose_plan(facts: Facts, method: str | None = None) -> Plan:
    """The ways that are worth their price at this size. `method` names one instead."""
    plan = _decided(facts)
    if method is None:
        return _with_inputs(facts, plan)
    if method not in _possible(facts):
        names = ", ".join(f'"{way}"' for way in _possible(facts))
        raise WrongChoice(f'method="{method}" is not possible here: choose one of {names}, or leave it out.')
    return Plan(facts.verb, (method,), ("method= was given",))  # type: ignore[arg-type]


def _decided(f: Facts) -> Plan:
    if f.verb == "posterior":
        return _of_trained(f)
    if f.prior == "learned" and f.criterion in IN_FUNCTION_SPACE:
        if f.few:
            return _after_prior(f)
        why = (
            f"{_count(f)} with {f.outputs} outputs are beyond the exact posterior (limit {f.limits.words(f.new_head)})"
        )
        return Plan(f.verb, ("one network",), (why,))
    if f.criterion != "loo":
        return Plan(f.verb, ("one network",), (f'scales="{f.criterion}" chooses the Gaussian around one network',))
    if f.trained_as_asked:
        return Plan(f.verb, ("one network",), ("training= or validation= was given: the network asked for speaks",))
    if f.regression:
        return _regression(f)
    return _classes(f)


def _with_inputs(f: Facts, plan: Plan) -> Plan:
    """The plan with models of the inputs as candidates, where what the network leaves out can be compared with them."""
    n = f.examples
    if f.inputs is None or n is None or f.verb != "learn" or plan.ways[0] == "one network" or not f.can_leave_out:
        return plan
    if f.prior == "learned" and (f.regression or f.criterion != "loo"):
        return plan  # what the posterior around the prior says of left-out numbers is not kept
    ways: list[Way] = ["linear on the inputs"]
    reasons = ["models of the inputs are candidates: left-out examples say how much each counts"]
    if n <= f.inputs.process:
        ways.append("Gaussian process on the inputs")
    if n <= f.inputs.trees and f.trees:
        ways.append("forest on the inputs")
        if not f.regression and f.outputs <= f.inputs.boosted:
            ways.append("boosted trees on the inputs")
    if not f.trees:
        reasons.append("no trees: scikit-learn, which grows them, is not installed")
    if f.prior == "default" and n <= f.inputs.network:
        why = f"{_count(f)}: the network is trained for the posterior and certificates, and does not predict"
        return Plan(f.verb, ("network aside", *ways), (why, *reasons))
    return Plan(f.verb, (*plan.ways, *ways), (*plan.reasons, *reasons))


def _after_prior(f: Facts) -> Plan:
    ways: list[Way] = ["exact around the prior"]
    reasons = [f"{_count(f)}: few enough for the exact posterior around the prior's mean"]
    if f.criterion == "loo" and not f.regression:
        if f.trains:
            ways.append("networks from the prior")
        if not f.as_asked:
            # A head that is handed down knows its classes already: beside it the prior itself is the simpler candidate.
            if not f.new_head:
                ways.append("prior alone")
            elif f.has_head:
                ways.append("head alone")
    if len(ways) > 1:
        judge = (
            "each has a weight by what it left out"
            if f.can_leave_out
            else "nothing can be left out: weights are beliefs"
        )
        reasons.append(f"{len(ways)} candidates: {judge}")
    return Plan(f.verb, tuple(ways), tuple(reasons))


def _regression(f: Facts) -> Plan:
    small = f.weights <= f.limits.small_network and f.plain_network
    reach = f.examples is not None and (f.few or (f.examples <= f.limits.examples and f.same_again))
    if f.noise_per_input:
        return Plan(f.verb, ("one network",), ("the noise depends on the input: the network's own outputs say it",))
    if f.prior == "default" and small and reach and f.can_leave_out:
        return Plan(
            f.verb,
            ("small networks",),
            (f"a regression by a small network ({f.weights:,} weights): folds choose strength, noise and width",),
        )
    why = (
        "a prior was given"
        if f.prior != "default"
        else f"the network is not small ({f.weights:,} weights, limit {f.limits.small_network:,}), or has running statistics"
        if not small
        else "nothing can be left out"
        if reach
        else f"more examples than are held in memory ({f.limits.examples:,}), or other ones at each reading"
    )
    return Plan(f.verb, ("one network",), (why,))


def _classes(f: Facts) -> Plan:
    most = f.limits.examples if f.weights <= f.limits.small_network else f.limits.from_scratch
    problems = {
        "the network's weights are not new: it is trained on from there": f.new_network,
        f"the network is large ({f.weights:,} weights, limit {f.limits.large_network:,})": f.weights
        <= f.limits.large_network,
        "the network has trainable weights outside its blocks, or running statistics": f.plain_network,
        f"{_count(f)} are more than {most:,}": f.examples is not None and f.examples <= most,
        "examples are not the same at each reading": f.same_again,
    }
    why = next((reason for reason, fine in problems.items() if not fine), None)
    if why is not None:
        return Plan(f.verb, ("one network",), (why,))
    how = "networks on all of them and without each fold, averaged"
    if not f.can_leave_out:
        how = "nothing can be left out, one network on all of them"
    return Plan(f.verb, ("networks from scratch",), (f"{_count(f)}: {how}",))


def _of_trained(f: Facts) -> Plan:
    if f.last_layer is None:
        if f.products <= f.limits.products or not f.has_head:
            return Plan(f.verb, ("structured",), (f.no_last_layer,))
        why = (
            f"a forward pass over all examples takes {f.products:.0e} products (limit {f.limits.products:.0e}), and curvature of "
            'all layers some fifty: the last layer alone is uncertain (method="structured" takes all)'
        )
        return Plan(f.verb, ("structured, last layer",), (why,))
    few = f.examples is not None and f.examples <= f.limits.shared
    reach = few or f.last_layer * f.outputs <= f.limits.side
    if f.learns_noise:
        reach = f.closed_form and f.examples is not None and f.examples * f.outputs <= f.limits.side
    if reach:
        return Plan(f.verb, ("last layer",), ("one last layer is uncertain: its posterior is exact",))
    why = f"{_count(f)} are beyond the exact last layer (limit {f.limits.shared:,}, or inputs times outputs of {f.limits.side:,})"
    return Plan(f.verb, ("structured",), (why,))


def _possible(f: Facts) -> tuple[str, ...]:
    if f.verb == "posterior":
        exact = () if f.last_layer is None else ("last layer",)
        return (*exact, "structured", *(("structured, last layer",) if f.has_head else ()))
    if f.verb == "adapt":
        return ("exact around the prior",)
    found: list[str] = ["one network"]
    # What only one network obeys (training=, another criterion) is never left aside in silence.
    free = f.prior == "default" and f.criterion == "loo" and not f.trained_as_asked
    if f.examples is not None and f.plain_network and free and f.same_again:
        if not f.regression:
            found.append("networks from scratch")
        elif f.can_leave_out and not f.noise_per_input:
            found.append("small networks")
    if f.few and f.prior == "learned" and f.criterion in IN_FUNCTION_SPACE:
        found.append("exact around the prior")
    return tuple(found)


def _count(f: Facts) -> str:
    return "the examples" if f.examples is None else f"{f.examples:,} example{'s' * (f.examples != 1)}"
