"""Every class loses alike when examples are left out, and an example that is alone in its class stays."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from small import Problem

import posterity as pt
from posterity.data.leave_out import FOLDS, SIDE, LeaveOut
from posterity.kernel import Calibration, choose
from posterity.kernel.gradients import Rows


def fold_of(targets, groups=None):
    return LeaveOut.of(targets, groups).folds


@pytest.mark.parametrize("each", [2, 3, 4, 5, 10])
def test_each_fold_leaves_out_equally_many_of_every_class(each):
    targets = torch.arange(6).repeat(each)[torch.randperm(6 * each, generator=torch.Generator().manual_seed(each))]
    folds = fold_of(targets)
    assert folds.max() + 1 == min(each, FOLDS)
    for k in range(int(folds.max()) + 1):
        assert targets[folds == k].bincount(minlength=6).unique().tolist() == [each // min(each, FOLDS)]


def test_an_example_that_is_alone_in_its_class_is_never_left_out():
    targets = torch.tensor([0, 1, 2, 0, 1, 3])
    folds = fold_of(targets)
    assert (folds == -1).tolist() == [False, False, True, False, False, True]
    assert LeaveOut(folds).judged.tolist() == [0, 1, 3, 4]
    assert (fold_of(torch.arange(4)) == -1).all()


def test_groups_of_one_class_count_as_one_example_and_groups_of_several_classes_stay_whole():
    targets, groups = torch.tensor([0, 0, 1, 1, 0, 1, 2, 2]), torch.tensor([7, 7, 5, 5, 3, 1, 9, 9])
    folds = fold_of(targets, groups)
    assert folds.max() == 1
    assert folds[0] == folds[1] != folds[4]
    assert folds[2] == folds[3] != folds[5]
    assert folds[6] == folds[7] == -1
    assert LeaveOut.of(targets, groups).together.tolist() == [3, 3, 2, 2, 1, 0]
    assert LeaveOut.of(targets, groups).count == 4
    mixed = fold_of(torch.tensor([0, 1, 0, 1, 0, 1]), torch.tensor([0, 0, 1, 1, 2, 2]))
    assert mixed.unique().tolist() == [0, 1, 2]
    assert mixed[0] == mixed[1]


def test_few_examples_are_left_out_by_whole_folds_and_more_one_by_one():
    few, many = LeaveOut.of(torch.arange(3).repeat(4)), LeaveOut.of(torch.arange(3).repeat(5))
    assert torch.equal(few.lots(3), few.folds)
    assert many.lots(3) is None
    groups = torch.arange(15)
    assert torch.equal(replace(many, groups=groups).lots(3), groups)
    wide = LeaveOut.of(torch.arange(40).repeat(2))
    assert SIDE < 40 * 40
    assert wide.lots(40) is None


def test_inputs_that_say_nothing_leave_left_out_examples_at_chance():
    """One by one, each class looks rarer than the others while its example is out: worse than chance."""
    problem = Problem("dense", 4, 8, pt.Categorical(), shared=True)
    first = {name: (rows.a[:1], rows.s[:1]) for name, rows in problem.linearised.train.blocks.items()}
    blocks = {name: Rows(a.repeat(8, 1), s.repeat(8, 1, 1)) for name, (a, s) in first.items()}
    train = replace(problem.linearised.train, blocks=blocks)
    alike = replace(problem.linearised, train=train, targets=torch.arange(4).repeat(2))
    posterior = alike.posterior(None)
    folds = fold_of(alike.targets)
    for left_out in (posterior.left_out(folds), posterior.refitted(folds)):
        nll = left_out.nll(problem.likelihood, alike.targets, Calibration())
        assert nll == pytest.approx(math.log(4), abs=1e-6)
    alone = posterior.left_out().nll(problem.likelihood, alike.targets, Calibration())
    assert alone > math.log(4) + 0.05


def test_an_example_that_stays_keeps_the_outputs_of_the_posterior():
    problem = Problem("dense", 3, 7, pt.GaussianNoise(2.0))
    posterior = problem.linearised.posterior(None)
    folds = torch.tensor([0, 0, 1, -1, 1, -1, 0])
    closed, refitted = posterior.left_out(folds), posterior.refitted(folds)
    torch.testing.assert_close(closed.mean, refitted.mean, rtol=1e-8, atol=1e-8)
    assert torch.equal(closed.mean[[3, 5]], posterior.latent.outputs[[3, 5]])
    assert not torch.allclose(closed.mean[0], posterior.latent.outputs[0])


@pytest.mark.parametrize("shared", [False, True])
def test_with_one_example_a_class_nothing_is_chosen_and_predictions_are_those_of_the_mode(shared):
    problem = Problem("dense", 4, 4, pt.Categorical(), shared=shared)
    single = replace(problem.linearised, targets=torch.arange(4))
    found, isotropic = choose(single), choose(single, shares=(0.0,))
    assert found.criterion == isotropic.criterion == "fixed"
    assert found.best.posterior.strength.share == found.best.posterior.strength.floor
    assert isotropic.best.posterior.strength.share == 0
    relabelled = choose(replace(single, targets=torch.arange(4).flip(0)))
    assert relabelled.best.posterior.strength == found.best.posterior.strength
    # A new head is surer after a good source than after another: both count.
    soft = (0.4, 1.0) if shared else (1.0,)
    assert [member.calibration for member in found.members] == [Calibration(0.0, t) for t in soft]


def test_a_group_called_minus_one_is_left_out_like_any_other():
    targets, groups = torch.arange(3).repeat(10), torch.arange(30) // 3
    same = LeaveOut.of(targets, groups - 1).lots(3)
    assert same is not None
    assert torch.equal(same, groups)
    problem = Problem("dense", 3, 12, pt.Categorical())
    task = replace(problem.linearised, targets=torch.arange(3).repeat(4))
    first, again = (choose(task, leave_out=LeaveOut.of(task.targets, torch.arange(12) // 2 - k)) for k in (0, 1))
    assert [(m.weight, m.nll, m.calibration) for m in again.members] == [
        (m.weight, m.nll, m.calibration) for m in first.members
    ]


@pytest.mark.parametrize("targets", [torch.tensor([0, 1, 2]), torch.randn(3), torch.randn(3, 2)])
def test_one_group_alone_is_never_left_out(targets):
    assert fold_of(targets, torch.full((3,), 7)).tolist() == [-1, -1, -1]
    assert fold_of(targets[:1]).tolist() == [-1]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32])
def test_labels_of_any_whole_type_have_the_same_folds(dtype):
    targets = torch.tensor([0, 1, 2, 0, 1, 3])
    assert torch.equal(fold_of(targets.to(dtype)), fold_of(targets))
