"""Which label next, and what labels are worth."""

import pytest
import torch
from test_head_classes import clusters, in_folds

from posterity.errors import BadData, NoData
from posterity.heads import ask, classify, worth
from posterity.heads.asking import LEAST


def fitted(each=4, pool=60, d=12, noise=1.5):
    x, y = clusters(each=each + pool // 3, d=d, noise=noise)
    n = 3 * each
    return classify(x[:n], y[:n], in_folds(y[:n])), x[n:], y[n:]


def brute_force(head, pool, k):
    """The same gains from dense covariances of all candidates, recomputed after every choice."""
    rows = head.views["unit"](pool)
    d = rows.shape[1]
    training = head.axes.vectors * head.axes.values.sqrt()
    precision = head.precision * torch.eye(d).double() + head.curvature * training @ training.mT
    p = head.log_probs(pool).exp()
    h = (p * (1 - p)).clamp_min(LEAST)
    chosen = []
    for _ in range(k):
        covariance = rows @ torch.linalg.inv(precision) @ rows.mT
        gain = ((covariance.square() @ h) / (covariance.diagonal()[:, None] + 1 / h)).sum(1)
        gain[chosen] = -torch.inf
        chosen.append(int(gain.argmax()))
        row = rows[chosen[-1]]
        precision = precision + h[chosen[-1]].mean() * torch.outer(row, row)
    return chosen


def test_greedy_choices_are_those_of_dense_covariances():
    fit, pool, _ = fitted()
    assert ask(fit.head, pool, 8).tolist() == brute_force(fit.head, pool, 8)


def test_more_candidates_than_finalists_change_nothing_where_the_best_are_among_them():
    fit, pool, _ = fitted()
    draw = torch.Generator().manual_seed(0)
    whole = ask(fit.head, pool, 3, generator=draw.manual_seed(0)).tolist()
    few = ask(fit.head, pool, 3, generator=draw.manual_seed(0), finalists=20, chunk=7)
    assert few.tolist() == whole


def test_rows_with_a_label_are_not_asked_for():
    fit, pool, _ = fitted()
    first = ask(fit.head, pool, 5)
    again = ask(fit.head, pool, 5, labelled=first)
    assert not set(first.tolist()) & set(again.tolist())


def test_of_a_group_one_is_asked_for():
    fit, pool, _ = fitted()
    groups = torch.arange(len(pool)) // 10
    chosen = ask(fit.head, pool, 6, groups=groups)
    assert len(groups[chosen].unique()) == 6
    with pytest.raises(BadData, match="6 to choose from"):
        ask(fit.head, pool, 7, groups=groups)


def test_an_empty_pool_and_too_many_are_named():
    fit, pool, _ = fitted()
    with pytest.raises(NoData, match="give more inputs"):
        ask(fit.head, pool[:0], 1)
    with pytest.raises(NoData, match="give more inputs"):
        ask(fit.head, pool, 1, labelled=torch.arange(len(pool)))
    with pytest.raises(BadData, match="give k from 1 to 60"):
        ask(fit.head, pool, 61)


def test_more_labels_are_worth_more_and_the_interval_holds_the_gain():
    fit, _, _ = fitted(each=12)
    few, many = (worth(fit, k, torch.Generator().manual_seed(0)) for k in (10, 100))
    assert 0 < few.gain < many.gain < many.nll
    assert few.low <= few.gain <= few.high
    assert "10 more labels" in str(few)


def test_a_curve_needs_three_labels_of_a_class():
    fit, _, _ = fitted(each=2)
    with pytest.raises(NoData, match="no class has three labels"):
        worth(fit, 5)
    with pytest.raises(BadData, match="positive"):
        worth(fit, 0)
