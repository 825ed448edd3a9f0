"""A head for classes: against brute force, and what bad input is answered with."""

import math

import pytest
import torch
from torch.nn.functional import cross_entropy, one_hot

from posterity.errors import BadData, BadTargets, NoData, SizeMismatch
from posterity.heads import ClassFit, HeadRecipe, classify, from_tensors, to_tensors
from posterity.heads.fitting import discriminants
from posterity.heads.softmax import SoftmaxProblems, modes
from posterity.heads.views import Axes, View, unit
from posterity.kernel.stacking import GRID, Temperatures, log_scores, stacked

STAYS = -1


def clusters(classes=3, each=6, d=40, seed=0, noise=1.0):
    draw = torch.Generator().manual_seed(seed)
    centres = torch.randn(classes, d, generator=draw, dtype=torch.float64)
    y = torch.arange(classes * each) % classes
    return centres[y] + noise * torch.randn(len(y), d, generator=draw, dtype=torch.float64), y


def in_folds(y, folds=3):
    """The i-th example of every class in fold i modulo `folds`."""
    order = torch.zeros_like(y)
    for c in y.unique():
        own = (y == c).nonzero().flatten()
        order[own] = torch.arange(len(own)) % folds
    return order


def by_newton(z, targets, weights, precisions, offset):
    """The mode by dense Newton steps on all weights at once."""
    r = z.shape[1]
    classes = targets.shape[1]
    w = torch.zeros(r, classes, dtype=z.dtype)
    for _ in range(50):
        p = (offset + z @ w).softmax(-1)
        slope = z.mT @ (weights[:, None] * (p - targets)) + precisions[:, None] * w
        h = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
        curvature = torch.einsum("n,ni,nj,ncd->icjd", weights, z, z, h).reshape(r * classes, -1)
        curvature += torch.diag(precisions.repeat_interleave(classes))
        w = w - torch.linalg.solve(curvature, slope.flatten()).view(r, classes)
    return w


def test_every_mode_of_a_batch_is_that_of_newtons_method_on_its_own():
    x, y = clusters(classes=4, each=5, d=6)
    targets = one_hot(y).double()
    weights = torch.stack([torch.ones(20), (torch.arange(20) % 5 != 0).double() * 1.25]).double().repeat(2, 1)
    precisions = torch.tensor([0.1, 0.1, 2.0, 2.0], dtype=torch.float64)[:, None].expand(4, 6).contiguous()
    offsets = torch.randn(20, 4, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = modes(SoftmaxProblems(x, targets, weights, precisions, lambda index: offsets[:, index]), tolerance=1e-16)
    for b in range(4):
        expected = by_newton(x, targets, weights[b], precisions[b], offsets[:, b])
        torch.testing.assert_close(found[b], expected, rtol=1e-6, atol=1e-7)


def test_a_batch_in_parts_is_the_same_batch(monkeypatch):
    x, y = clusters(d=5)
    weights = torch.ones(6, len(y), dtype=torch.float64)
    precisions = torch.logspace(-1, 1, 6, dtype=torch.float64)[:, None].expand(6, 5).contiguous()
    problems = SoftmaxProblems(
        x, one_hot(y).double(), weights, precisions, lambda i: torch.zeros(len(y), len(i), 3).double()
    )
    whole = modes(problems, 1e-14)
    monkeypatch.setattr("posterity.heads.softmax.BYTES", 1)
    torch.testing.assert_close(modes(problems, 1e-14), whole, rtol=1e-6, atol=1e-7)


def test_left_out_log_probabilities_are_those_of_a_refit_without_the_fold():
    x, y = clusters(each=6, noise=2.0)
    folds = in_folds(y)
    recipe = HeadRecipe(strengths=(0.3,), shrinkages=(), tolerance=1e-14, counts=(1.0, 1e-12, 1e-12))
    fit = classify(x, y, folds, recipe=recipe)
    view = View.of("unit", x)
    member = fit.head.members[0]
    for k in range(3):
        kept = folds != k
        z = torch.cat([view(x), torch.ones(len(x), 1).double()], 1)
        precisions = torch.full((41,), 0.3, dtype=torch.float64)
        precisions[-1] = recipe.bias
        w = by_newton(z[kept], one_hot(y).double()[kept], torch.full((12,), 18 / 12).double(), precisions, 0.0)
        expected = fit.head.temperatures(member.temperatures(z[~kept] @ w, fit.head.shift), torch.zeros(3).double())
        torch.testing.assert_close(fit.left_out[folds[fit.judged] == k], expected, rtol=1e-5, atol=1e-6)


def test_a_discriminant_is_the_log_density_of_normals_with_one_covariance():
    x, y = clusters(d=4, each=10)
    targets = one_hot(y).double()
    rows = discriminants(x, targets, (0.2,))[0]
    logits = torch.cat([x, torch.ones(30, 1).double()], 1) @ rows
    means = torch.stack([x[y == c].mean(0) for c in range(3)])
    within = sum((x[y == c] - means[c]).mT @ (x[y == c] - means[c]) for c in range(3)) / 27
    covariance = 0.8 * within + 0.2 * within.trace() / 4 * torch.eye(4).double()
    expected = torch.stack([torch.distributions.MultivariateNormal(m, covariance).log_prob(x) for m in means], 1)
    torch.testing.assert_close(logits.log_softmax(-1), expected.log_softmax(-1))


def test_axes_keep_every_inner_product_of_the_rows():
    for shape in ((5, 9), (9, 5)):
        rows = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        axes = Axes.of(rows)
        z = rows @ axes.vectors
        torch.testing.assert_close(z @ z.mT, rows @ rows.mT)
        torch.testing.assert_close(z.mT @ z, torch.diag(axes.values), atol=1e-10, rtol=0)


def test_weights_of_a_stack_are_at_the_optimum_of_their_objective():
    scores = torch.randn(4, 30, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    counts = torch.tensor([0.5, 0.5, 0.1, 0.1], dtype=torch.float64)
    weights = stacked(scores, counts)

    def objective(w):
        return float((scores + w.log()[:, None]).logsumexp(0).sum() + (counts * w.log()).sum())

    best = objective(weights)
    for i in range(4):
        moved = weights.clone()
        moved[i] *= 1.01
        assert objective(moved / moved.sum()) <= best + 1e-9


def test_temperatures_without_labels_are_the_belief_and_with_many_the_likelihoods():
    none = torch.zeros(0, 3).double()
    shift = torch.zeros(3).double()
    belief = Temperatures.by_left_out(none, shift, torch.zeros(0).long(), 0.0, 0.35, 0.0)
    mean = sum(w * math.log(t) for t, w in zip(belief.values, belief.weights, strict=True))
    assert abs(mean) < 1e-3
    draw = torch.Generator().manual_seed(0)
    logits = torch.randn(4000, 3, generator=draw, dtype=torch.float64)
    labels = torch.multinomial((logits / math.exp(0.6)).softmax(-1), 1, generator=draw).flatten()
    found = Temperatures.by_left_out(logits, shift, labels, 0.0, 0.35, 0.3)
    assert min(abs(math.log(t) - 0.6) for t in found.values) < 0.05 + (GRID[1] - GRID[0]) / 2
    assert abs(sum(w * math.log(t) for t, w in zip(found.values, found.weights, strict=True)) - 0.6) < 0.2


def test_the_head_learns_and_its_probabilities_sum_to_one():
    x, y = clusters(each=20, noise=2.0)
    train = torch.arange(60) < 30
    fit = classify(x[train], y[train], in_folds(y[train], 5))
    log_probs = fit.head.log_probs(x[~train])
    torch.testing.assert_close(log_probs.exp().sum(1), torch.ones(30).double())
    assert float(cross_entropy(log_probs, y[~train])) < 0.5 * math.log(3)


def test_a_scale_of_the_features_changes_nothing():
    x, y = clusters(each=8)
    fits = [classify(x * factor, y, in_folds(y)) for factor in (1.0, 1000.0)]
    probs = [fit.head.log_probs(x * factor) for fit, factor in zip(fits, (1.0, 1000.0), strict=True)]
    torch.testing.assert_close(probs[0], probs[1], rtol=1e-6, atol=1e-6)


def test_one_label_a_class_leaves_nothing_out_and_still_predicts():
    x, y = clusters(each=21)
    fit = classify(x[:3], y[:3], torch.full((3,), STAYS))
    assert len(fit.judged) == 0
    assert float(cross_entropy(fit.head.log_probs(x[3:]), y[3:])) < 0.7 * math.log(3)


def test_a_head_comes_back_from_its_tensors():
    x, y = clusters()
    head = classify(x, y, in_folds(y)).head
    again = from_tensors(*to_tensors(head))
    torch.testing.assert_close(again.log_probs(x), head.log_probs(x), rtol=0, atol=0)
    one, two = (h.belief.variance(h.belief.inputs(x)) for h in (again, head))
    torch.testing.assert_close(one, two, rtol=0, atol=0)


def test_variance_is_that_of_dense_bayesian_regression_and_grows_away_from_the_rows():
    x, y = clusters(each=4, d=7)
    head = classify(x, y, in_folds(y)).head
    rows = head.views["unit"](x)
    dense = torch.linalg.inv(head.precision * torch.eye(7).double() + head.curvature * rows.mT @ rows)
    new = torch.randn(5, 7, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    seen = head.views["unit"](new)
    torch.testing.assert_close(head.belief.variance(seen), ((seen @ dense) * seen).sum(1))


def test_a_group_that_holds_a_whole_class_is_not_judged():
    x, y = clusters(each=4)
    folds = torch.where(y == 0, 0, 1)
    fit = classify(x, y, folds)
    assert len(fit.judged) == 0


def test_beyond_the_weakest_strength_a_weaker_one_is_tried():
    x, y = clusters(classes=2, each=100, d=5, noise=0.7)
    fit = classify(x, y, in_folds(y, 5), recipe=HeadRecipe(strengths=(50.0, 20.0), shrinkages=()))
    assert min(c.strength for c in fit.head.weights()) < 20.0


def test_constant_columns_change_nothing_on_standardised_columns():
    x, y = clusters()
    wider = torch.cat([x, torch.full((len(x), 2), 7.0)], 1)
    plain, padded = View.of("columns", x), View.of("columns", wider)
    torch.testing.assert_close(padded(wider)[:, :-2], plain(x))
    assert float(padded(wider)[:, -2:].abs().max()) == 0
    assert bool(classify(wider, y, in_folds(y)).head.log_probs(wider).isfinite().all())


def test_unit_rows_keep_zero_rows():
    assert float(unit(torch.zeros(2, 3).double()).abs().max()) == 0


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (lambda x, y, f: (x.index_fill(1, torch.tensor([2]), torch.inf), y, f), BadData, "column 2"),
        (lambda x, y, f: (x[:, 0], y, f), BadData, "matrix"),
        (lambda x, y, f: (x, torch.zeros_like(y), f), BadTargets, "one class"),
        (lambda x, y, f: (x, y * 2, f), BadTargets, "class 1"),
        (lambda x, y, f: (x, y.double(), f), BadTargets, "regress"),
        (lambda x, y, f: (x, y[:-1], f), SizeMismatch, "labels"),
        (lambda x, y, f: (x[:0], y[:0], f[:0]), NoData, "no labelled example"),
    ],
)
def test_bad_input_is_named(change, error, words):
    x, y = clusters()
    with pytest.raises(error, match=words):
        classify(*change(x, y, in_folds(y)))


def test_another_width_at_prediction_is_named():
    x, y = clusters()
    with pytest.raises(SizeMismatch, match="39 columns here and 40"):
        classify(x, y, in_folds(y)).head.log_probs(x[:, 1:])


def test_log_scores_are_cross_entropies():
    logits = torch.randn(6, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    labels = torch.tensor([0, 1, 2, 3, 0, 1])
    torch.testing.assert_close(-log_scores(logits, labels).mean(), cross_entropy(logits, labels))


def one_label(width: int, classes: int = 4) -> ClassFit:
    x = torch.randn(classes, width, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return classify(x, torch.arange(classes), torch.full((classes,), -1))


def test_one_label_a_class_counts_for_more_the_more_columns_the_rows_are_spread_over():
    shares = [{c.method: w for c, w in one_label(width).head.weights().items()} for width in (2, 20, 500)]
    cautious = [found["frequencies"] for found in shares]
    assert cautious[0] > 0.4 > cautious[1] > 0.1 > 0.03 > cautious[2]


def test_columns_of_a_tiny_scale_are_no_spread():
    narrow, x = one_label(2), torch.zeros(4, 302, dtype=torch.float64)
    x[:, :2], x[:, 2:] = narrow.features, 1e-9 * torch.randn(4, 300, dtype=torch.float64)
    wide = classify(x, torch.arange(4), torch.full((4,), -1))
    by_method = [{c.method: w for c, w in fit.head.weights().items()} for fit in (narrow, wide)]
    assert by_method[1]["frequencies"] == pytest.approx(by_method[0]["frequencies"], rel=1e-6)


def test_one_label_a_class_of_a_few_columns_of_noise_costs_little_more_than_chance():
    draw = torch.Generator().manual_seed(3)
    costs = []
    for _ in range(20):
        x = torch.randn(202, 4, generator=draw, dtype=torch.float64)
        fit = classify(x[:2], torch.arange(2), torch.full((2,), -1))
        costs.append(float(-log_scores(fit.head.log_probs(x[2:]), torch.arange(200) % 2).mean()))
    assert 0 < sum(costs) / len(costs) - torch.tensor(2.0).log() < 0.15


def test_a_head_with_frequencies_comes_back_from_its_tensors():
    head = one_label(3).head
    again = from_tensors(*to_tensors(head))
    x = torch.randn(5, 3, dtype=torch.float64)
    assert any(m.candidate.method == "frequencies" for m in head.members)
    assert torch.equal(head.log_probs(x), again.log_probs(x))


@pytest.mark.parametrize("seed", [0, 3, 5, 8])
def test_a_mode_is_found_where_the_priors_mean_is_hundreds_of_logits_off(seed):
    draw = torch.Generator().manual_seed(seed)
    z = torch.randn(60, 9, generator=draw, dtype=torch.float64)
    z[0] *= 1e3
    z = torch.cat([z / z.square().sum(1).mean().sqrt(), z.new_ones(60, 1)], 1)
    y = torch.randint(3, (60,), generator=draw)
    offset = 300 * torch.randn(60, 1, 3, generator=draw, dtype=torch.float64)
    targets, precisions = one_hot(y, 3).double(), z.new_full((1, 10), 0.18)
    w = modes(SoftmaxProblems(z, targets, z.new_ones(1, 60), precisions, lambda index: offset), 6e-3)[0]
    by_hand = w.clone().requires_grad_()

    def loss():
        return cross_entropy(offset[:, 0] + z @ by_hand, y, reduction="sum") + 0.09 * by_hand.square().sum()

    search = torch.optim.LBFGS([by_hand], max_iter=300, line_search_fn="strong_wolfe")

    def closure():
        search.zero_grad()
        value = loss()
        value.backward()
        return value

    before = float(loss().detach())
    search.step(closure)
    assert float(loss().detach()) > before - 0.05
