"""What earlier versions wrote otherwise still works, and warns with what to write."""

from __future__ import annotations

import importlib
import warnings

import pytest
import torch
from torch import nn

import posterity as pt
from posterity.deprecated import MOVED, RENAMED

PLACES = [(part, name) for part, names in MOVED.items() for name in names]


@pytest.mark.parametrize(("part", "name"), PLACES)
def test_a_name_that_moved_is_found_with_a_warning_that_says_where(part, name):
    now = RENAMED.get(part, {}).get(name, name)
    with pytest.warns(DeprecationWarning, match=rf"pt\.{name} is pt\.{part}\.{now} now"):
        found = getattr(pt, name)
    assert found is getattr(getattr(pt, part), now)
    assert name not in pt.__all__


@pytest.mark.parametrize(("part", "name"), [(part, name) for part, names in RENAMED.items() for name in names])
def test_a_class_with_another_name_is_found_by_the_older_one(part, name):
    now, module = RENAMED[part][name], importlib.import_module(f"posterity.{part}")
    with pytest.warns(DeprecationWarning, match=f"posterity.{part}.{name} is called {now} now"):
        found = getattr(module, name)
    assert found is getattr(module, now)


def test_there_are_at_most_forty_public_names_and_each_exists():
    assert len(pt.__all__) == len(set(pt.__all__)) <= 40
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert all(getattr(pt, name) is not None for name in pt.__all__)


def test_a_name_that_never_was_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'absorb'"):
        pt.absorb  # noqa: B018


def test_verbs_take_the_older_order_with_a_warning_and_give_the_same():
    torch.manual_seed(0)
    model, data = nn.Linear(3, 2), (torch.randn(12, 3), torch.randint(2, (12,)))
    prior = pt.isotropic(model)
    curvature = pt.estimate(model, data, progress=False)
    now = pt.update(model, curvature, prior, pt.Scales(beta=0.5))
    with pytest.warns(DeprecationWarning, match=r"update takes \(model, curvature, prior, …\) now") as raised:
        before = pt.update(prior, model, curvature, pt.Scales(beta=0.5))  # type: ignore[arg-type]
    assert raised[0].filename == __file__
    assert all(torch.equal(now.mean[name], before.mean[name]) for name in now.mean)
    assert all(torch.equal(now.precision[n].dense(), before.precision[n].dense()) for n in now.mean)
