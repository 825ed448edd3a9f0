"""MAP training: to the right place, in the right units, and back to the best weights."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, SubsetRandomSampler, TensorDataset
from training_worker import network, task

import posterity as pt
from posterity.algebra import Kronecker
from posterity.errors import BadData, NoData, NotFinite
from posterity.gaussian import Gaussian
from posterity.laplace.run import BatchSource, split


def logistic() -> nn.Linear:
    torch.manual_seed(1)
    return nn.Linear(4, 3).double()


def strong_prior(model: nn.Module) -> Gaussian:
    """A prior that matters: precision of the data's own size, correlated, around nothing in particular."""
    generator = torch.Generator().manual_seed(4)
    isotropic = pt.isotropic(model, 1.0)
    a, b = (torch.randn(n, n + 1, generator=generator, dtype=torch.float64) for n in (3, 5))
    mean = torch.randn(3, 5, generator=generator, dtype=torch.float64)
    return Gaussian({"": mean}, {"": Kronecker(4 * a @ a.T, b @ b.T / 5)}, isotropic.card)


def by_lbfgs(prior: Gaussian, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The minimiser of summed NLL + ½ quadratic, written out."""
    w = torch.zeros(3, 5, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS(
        [w], max_iter=500, tolerance_grad=1e-13, tolerance_change=0, line_search_fn="strong_wolfe"
    )
    precision = prior.precision[""].dense()

    def closure() -> torch.Tensor:
        optimiser.zero_grad()
        shift = (w - prior.mean[""]).flatten()
        loss = F.cross_entropy(x @ w[:, :-1].T + w[:, -1], y, reduction="sum") + 0.5 * shift @ precision @ shift
        loss.backward()
        return loss

    optimiser.step(closure)
    return w.detach()


def matrix(layer: nn.Linear) -> torch.Tensor:
    return torch.cat((layer.weight, layer.bias[:, None]), 1).detach()


def test_full_batches_reach_the_minimiser_of_summed_nll_plus_half_the_quadratic():
    model, (x, y) = logistic(), task()
    prior = strong_prior(model)
    lbfgs = {"max_iter": 300, "tolerance_grad": 1e-12, "tolerance_change": 0, "line_search_fn": "strong_wolfe"}
    pt.train(
        model,
        (x, y),
        prior,
        validation=None,
        epochs=3,
        optimiser=lambda p: torch.optim.LBFGS(p, **lbfgs),
        progress=False,
    )
    assert (matrix(model) - by_lbfgs(prior, x, y)).abs().max() < 1e-6


@pytest.mark.parametrize("batch_size", [1, 5, 25, 50])
def test_the_prior_counts_once_whatever_the_batch_size(batch_size):
    """At the true minimiser the gradients of an epoch's batches, each by its size, sum to nothing."""
    model, (x, y) = logistic(), task()
    prior = strong_prior(model)
    best = by_lbfgs(prior, x, y)
    with torch.no_grad():
        model.weight.copy_(best[:, :-1])
        model.bias.copy_(best[:, -1])
    seen = []

    class Listening(torch.optim.SGD):
        def step(self, closure=None):
            closure()
            seen.append(torch.cat([p.grad.flatten() for group in self.param_groups for p in group["params"]]))

    pt.train(
        model,
        (x, y),
        prior,
        validation=None,
        epochs=1,
        batch_size=batch_size,
        optimiser=lambda p: Listening(p, 0.1),
        start="model",
        progress=False,
    )
    assert len(seen) == 50 // batch_size
    pull = prior.precision[""].matmul(best - prior.mean[""]).norm() / len(x)
    assert torch.stack(seen).mean(0).norm() < 1e-8 < 1e-3 < pull


def test_no_prior_means_maximum_likelihood():
    model, (x, y) = logistic(), task(200)
    lbfgs = {"max_iter": 300, "tolerance_grad": 1e-12, "tolerance_change": 0, "line_search_fn": "strong_wolfe"}
    pt.train(
        model, (x, y), validation=None, epochs=3, optimiser=lambda p: torch.optim.LBFGS(p, **lbfgs), progress=False
    )
    loss = F.cross_entropy(model(x), y)
    assert max(g.abs().max() for g in torch.autograd.grad(loss, list(model.parameters()))) < 1e-9


class Scripted(nn.Module):
    """A network whose held-out loss follows a script: the optimiser counts epochs in its only weight."""

    def __init__(self, losses: list[float]) -> None:
        super().__init__()
        self.epoch = nn.Linear(1, 1, bias=False)
        self.losses = losses
        with torch.no_grad():
            self.epoch.weight.zero_()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        step = round(self.epoch.weight.item())
        shift = 0.0 if self.training else self.losses[min(step, len(self.losses)) - 1]
        return self.epoch(x) * 0 + shift


class Counting(torch.optim.SGD):
    def step(self, closure=None):
        closure()
        with torch.no_grad():
            self.param_groups[0]["params"][0] += 1


def scripted(losses: list[float], **options) -> tuple[int, pt.laplace.History]:
    """The epoch whose weights were kept, and the history, where the held-out loss of epoch i is losses[i]."""
    model, data = Scripted(losses), (torch.ones(4, 1), torch.zeros(4, 1))
    options = {"epochs": len(losses), "optimiser": lambda p: Counting(p, lr=1.0)} | options
    history = pt.train(model, data, None, pt.GaussianNoise(), validation=data, progress=False, **options)
    return round(model.epoch.weight.item()) - 1, history


def test_the_best_epochs_weights_are_restored():
    kept, history = scripted([5.0, 3.0, 1.0, 2.0, 4.0])
    assert (kept, history.best, len(history.epochs)) == (2, 2, 5)
    assert history.final.validation_nll == min(e.validation_nll for e in history.epochs)


def test_of_equal_epochs_the_first_is_best():
    assert scripted([2.0, 1.0, 1.0, 1.0])[0] == 1


def test_the_rate_is_halved_after_five_stale_epochs_and_training_ends_after_ten():
    kept, history = scripted([1.0] + [2.0] * 30)
    assert kept == 0
    assert [e.lr for e in history.epochs] == [1.0] * 6 + [0.5] * 5
    kept, history = scripted([2.0, *[3.0] * 7, 1.0, *[3.0] * 30])
    assert kept == 8
    # Halved in the first spell and counted afresh after the better epoch.
    assert [e.lr for e in history.epochs] == [1.0] * 6 + [0.5] * 8 + [0.25] * 5
    assert len(history.epochs) == 9 + 10


def test_patience_is_an_option():
    _, history = scripted([1.0] + [2.0] * 30, halve_after=1, stop_after=3)
    assert [e.lr for e in history.epochs] == [1.0, 1.0, 0.5, 0.25]


def test_a_run_that_overfits_ends_with_the_weights_that_did_not():
    x, y = torch.randn(8, 4, dtype=torch.float64), torch.tensor([0, 1, 2, 0, 1, 2, 0, 1])
    held = task(200)
    model = network()
    history = pt.train(model, (x, y), validation=held, epochs=60, stop_after=60, lr=0.05, batch_size=4, progress=False)
    last, best = history.epochs[-1], history.final
    assert last.nll < 0.2
    assert best.validation_nll < last.validation_nll - 0.5
    assert F.cross_entropy(model.eval()(held[0]), held[1]).item() == pytest.approx(best.validation_nll, rel=1e-9)


def test_without_validation_the_objective_is_watched():
    _, data = logistic(), task()
    history = pt.train(logistic(), data, validation=None, epochs=3, progress=False)
    assert all(math.isnan(e.validation_nll) for e in history.epochs)
    assert history.final.objective == min(e.objective for e in history.epochs)


@pytest.mark.parametrize("optimiser", [torch.optim.SGD, torch.optim.AdamW, torch.optim.RMSprop, torch.optim.LBFGS])
def test_any_optimiser_serves(optimiser):
    model, data = logistic(), task()
    history = pt.train(
        model,
        data,
        pt.isotropic(model),
        epochs=10,
        batch_size=50,
        optimiser=lambda p: optimiser(p, lr=0.05),
        progress=False,
    )
    assert history.final.objective < history.epochs[0].objective
    assert history.final.lr == 0.05


def test_gradients_are_clipped():
    norms: dict[float | None, list[float]] = {None: [], 0.01: []}
    for clip, seen in norms.items():

        class Listening(torch.optim.SGD):
            def step(self, closure=None, seen=seen):
                closure()
                both = [p.grad for p in self.param_groups[0]["params"]]
                seen.append(float(torch.cat([g.flatten() for g in both]).norm()))

        pt.train(
            logistic(), task(), epochs=1, batch_size=9, clip=clip, optimiser=lambda p: Listening(p, 0.1), progress=False
        )
    assert min(norms[None]) > 0.02
    assert max(norms[0.01]) < 0.01 + 1e-6


class Named(Dataset):
    """Examples as mappings, the way transformers have them."""

    def __init__(self, x: torch.Tensor, y: torch.Tensor) -> None:
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i: int) -> dict[str, torch.Tensor]:
        return {"x": self.x[i], "labels": self.y[i]}


class TakesNames(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = logistic()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)


class Stream(IterableDataset):
    def __init__(self, x: torch.Tensor, y: torch.Tensor) -> None:
        self.pairs = list(zip(x, y, strict=True))

    def __iter__(self):
        return iter(self.pairs)


FORMS = {
    "tensors": lambda x, y: (x, y),
    "list of two": lambda x, y: [x, y],
    "dataset": TensorDataset,
    "loader": lambda x, y: DataLoader(TensorDataset(x, y), 50),
    "batches": lambda x, y: [(x[:20], y[:20]), (x[20:], y[20:])],
    "mappings": Named,
    "mapping loader": lambda x, y: DataLoader(Named(x, y), 50),
    "stream": Stream,
    "stream loader": lambda x, y: DataLoader(Stream(x, y), 50),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_data_is_the_same_data(form):
    x, y = task()
    model = TakesNames()
    history = pt.train(
        model,
        FORMS[form](x, y),
        pt.isotropic(model, 2.0),
        validation=None,
        epochs=1,
        batch_size=50,
        lr=0,
        progress=False,
    )
    expected = F.cross_entropy(model(x), y)
    epoch = history.final
    assert epoch.nll == pytest.approx(expected.item(), rel=1e-12)
    half = sum(p.square().sum() for p in model.parameters())
    assert epoch.objective == pytest.approx((expected + half / 50).item(), rel=1e-12)
    assert epoch.accuracy == pytest.approx(float((model(x).argmax(-1) == y).double().mean()))


@pytest.mark.parametrize("form", ["tensors", "dataset", "loader", "mappings", "mapping loader"])
def test_a_share_for_validation_is_neither_lost_nor_trained_on(form):
    x, y = task()
    x[:, 0] = torch.arange(50)
    parts = split(FORMS[form](x, y), 0.3, torch.Generator().manual_seed(0))
    seen = [Counter(), Counter()]
    for counter, part in zip(seen, parts, strict=True):
        for batch in BatchSource(part, 8, None):
            inputs = batch.positional[0] if batch.positional else batch.named["x"]
            counter.update(inputs[:, 0].tolist())
    assert (len(seen[0]), len(seen[1])) == (35, 15)
    assert seen[0] + seen[1] == Counter(range(50))


def test_of_a_list_of_batches_whole_ones_are_held_out():
    x, y = task()
    x[:, 0] = torch.arange(50)
    given = FORMS["batches"](x, y)
    kept, held = (
        {float(i) for batch in BatchSource(part, 8, None) for i in batch.positional[0][:, 0]}
        for part in split(given, 0.3, torch.Generator().manual_seed(0))
    )
    assert kept | held == set(range(50))
    assert not kept & held
    assert 0 < len(held) < len(kept)
    for batch in given:
        rows = set(batch[0][:, 0].tolist())
        assert rows <= kept or rows <= held


@pytest.mark.parametrize("form", ["stream", "stream loader"])
def test_a_share_is_not_taken_where_examples_cannot_be_chosen(form):
    with pytest.raises(BadData, match="pass validation=other_data"):
        pt.train(logistic(), FORMS[form](*task()), epochs=1, progress=False)


def test_a_loader_that_reads_a_part_of_its_data_is_not_made_to_read_all_of_it():
    x, y = task()
    loader = DataLoader(TensorDataset(x, y), 5, sampler=SubsetRandomSampler(range(10)))
    with pytest.raises(BadData, match="SubsetRandomSampler"):
        pt.train(logistic(), loader, epochs=1, progress=False)
    assert BatchSource(loader, 1, None).count == 10  # N, by which the prior is weighed
    assert BatchSource(DataLoader(TensorDataset(x, y), 5, sampler=list(range(7))), 1, None).count == 7
    assert BatchSource(DataLoader(TensorDataset(x, y), 8, shuffle=True, drop_last=True), 1, None).count == 50


def test_shares_that_make_no_sense_are_refused():
    for share in (-0.1, 1.0, 2):
        with pytest.raises(ValueError, match="between 0 and 1"):
            pt.train(logistic(), task(), validation=share, progress=False)
    with pytest.raises(NoData, match="leaves none of 2 examples"):
        pt.train(logistic(), task(2), validation=0.9, progress=False)
    with pytest.raises(NoData, match="validation data held no example"):
        pt.train(logistic(), task(), validation=[], epochs=1, progress=False)


def test_data_that_is_used_up_is_named():
    x, y = task()
    with pytest.raises(BadData, match="used up after one reading"):
        pt.train(logistic(), iter([(x, y)]), validation=None, epochs=2, progress=False)


def test_a_regression_trains_and_has_no_accuracy():
    x, _ = task()
    y = x[:, :1] * 2 - 1
    model = nn.Linear(4, 1).double()
    history = pt.train(
        model,
        (x, y),
        None,
        pt.GaussianNoise(100.0),
        epochs=5,
        optimiser=lambda p: torch.optim.LBFGS(p, lr=1),
        progress=False,
    )
    assert math.isnan(history.final.accuracy)
    assert (model.weight - torch.tensor([[2.0, 0, 0, 0]])).abs().max() < 1e-3


def test_tokens_that_do_not_count_are_not_wrong_answers():
    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(3, 3, bias=False)
            with torch.no_grad():
                self.head.weight.copy_(torch.eye(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(x)

    x = torch.eye(3)[None].repeat(4, 1, 1)
    y = torch.tensor([[0, 1, -100]] * 4)
    assert pt.train(Tagger(), (x, y), validation=None, epochs=1, progress=False).final.accuracy == 1.0


def test_frozen_layers_stay_and_the_rest_trains():
    model = network()
    model[0].requires_grad_(False)
    before = model[0].weight.clone()
    head = model[3].weight.clone()
    pt.train(model, task(), pt.isotropic(model), epochs=2, progress=False)
    assert torch.equal(model[0].weight, before)
    assert not torch.equal(model[3].weight, head)


def test_norm_statistics_move_in_training_and_not_in_a_layer_kept_in_evaluation_mode():
    for frozen in (False, True):
        model = network(norm=True).train()
        if frozen:
            model[1].eval()
        before = model[1].running_mean.clone()
        pt.train(model, task(), epochs=2, progress=False)
        assert torch.equal(model[1].running_mean, before) == frozen
        assert (model.training, model[1].training) == (True, not frozen)


@pytest.mark.parametrize("training", [True, False])
def test_modes_are_as_before_also_after_an_error(training):
    model = network(norm=True, dropout=True).train(training)
    pt.train(model, task(), epochs=1, progress=False)
    assert all(m.training == training for m in model.modules())
    x, y = task()
    with pytest.raises(NotFinite):
        pt.train(model, (x * math.nan, y), epochs=1, progress=False)
    assert all(m.training == training for m in model.modules())


def test_a_model_in_evaluation_mode_is_trained_with_its_dropout():
    model = nn.Sequential(nn.Linear(4, 50), nn.Dropout(0.5), nn.Linear(50, 3)).double().eval()
    first, second = (pt.train(model, task(), epochs=1, lr=0, progress=False).final.nll for _ in range(2))
    assert first != second


def test_a_loss_that_is_no_number_is_named_with_its_place():
    x, y = task()
    x = x.clone()
    x[:] = math.nan
    with pytest.raises(NotFinite, match="NaN"):
        pt.train(logistic(), (x, y), validation=None, progress=False)
    good, _ = task()

    def huge() -> nn.Linear:
        model = logistic()
        model.weight.data *= 1e10
        return model

    with pytest.raises(NotFinite, match=r"the loss of batch 0 in epoch 0 is (nan|inf): lower lr, or clip\."):
        pt.train(huge(), (1e300 * good, y), validation=None, progress=False)
    with pytest.raises(NotFinite, match=r"the held-out loss after epoch 0 is (nan|inf)"):
        pt.train(huge(), (good, y), validation=(1e300 * good, y), progress=False)


def test_one_generator_one_result_to_the_bit():
    def run(seed: int) -> tuple[nn.Module, pt.laplace.History]:
        model = network(norm=True)
        return model, pt.train(
            model, task(), epochs=3, batch_size=7, generator=torch.Generator().manual_seed(seed), progress=False
        )

    (a, first), (b, again), (c, other) = run(0), run(0), run(1)
    assert first == again
    assert first.epochs != other.epochs
    assert all(torch.equal(v, b.state_dict()[k]) for k, v in a.state_dict().items())
    assert not torch.equal(a[0].weight, c[0].weight)


def test_an_objective_of_ones_own_sees_mean_nll_half_the_quadratic_and_n():
    model, (x, y) = logistic(), task()
    prior, seen = strong_prior(model), []

    def objective(nll: torch.Tensor, half: torch.Tensor, count: int) -> torch.Tensor:
        seen.append((nll.item(), half.item(), count))
        return nll

    expected = (F.cross_entropy(model(x), y).item(), 0.5 * float(prior.quadratic({"": matrix(model)})), 50)
    pt.train(model, (x, y), prior, validation=None, objective=objective, epochs=1, start="model", progress=False)
    assert seen == [pytest.approx(expected, rel=1e-10)]


def test_a_bar_that_is_off_does_not_disturb_one_that_is_on(capsys):
    from rich.progress import Progress

    with Progress(disable=False) as outer:
        outer.add_task("outer")
        pt.train(logistic(), task(), epochs=1, progress=False)
    capsys.readouterr()
    pt.train(logistic(), task(), epochs=1, progress=False)
    assert capsys.readouterr() == ("", "")


def test_augmenting_changes_what_is_trained_on_and_nothing_that_is_watched():
    torch.manual_seed(0)
    model = nn.Linear(2, 2)
    data = (torch.randn(40, 2), torch.randint(2, (40,)))
    seen: list[torch.Tensor] = []

    def away(x: torch.Tensor) -> torch.Tensor:
        seen.append(x)
        return x + 100

    held = (torch.randn(10, 2), torch.randint(2, (10,)))
    history = pt.train(model, data, None, validation=held, epochs=2, batch_size=20, augment=away, progress=False)
    assert len(seen) == 4
    with torch.no_grad():
        expected = nn.functional.cross_entropy(model(held[0]), held[1])
    assert history.final.validation_nll == pytest.approx(float(expected), rel=1e-5)
    with pytest.raises(pt.errors.BadData, match="as many"):
        pt.train(model, data, None, epochs=1, augment=lambda x: x[:3], progress=False)


def test_training_starts_at_a_learned_priors_mean_unless_told_otherwise():
    """With no step taken the network is where training began."""
    prior = pt.isotropic(logistic(), 1.0, mean={"": torch.full((3, 5), 0.3, dtype=torch.float64)})
    for start, moved in (("prior", True), ("model", False)):
        model = logistic()
        before = matrix(model)
        pt.train(model, task(), prior, validation=None, epochs=0, start=start, progress=False)
        assert torch.equal(matrix(model), prior.mean[""] if moved else before)
    model = logistic()
    before = matrix(model)
    pt.train(model, task(), pt.isotropic(model), validation=None, epochs=0, progress=False)
    assert torch.equal(matrix(model), before)  # zero says nothing of where to start
    with pytest.raises(Exception, match="start"):
        pt.train(model, task(), prior, epochs=0, start="here", progress=False)


def test_polishing_arrives_at_the_mode():
    model, (x, y) = logistic(), task()
    prior = strong_prior(model)
    best = by_lbfgs(prior, x, y)
    history = pt.train(model, (x, y), prior, validation=None, epochs=0, polish_steps=100, progress=False)
    assert (matrix(model) - best).abs().max() < 1e-4
    assert history.slope < 1e-3
    assert len(history.epochs) == 1


def test_the_noise_of_a_regression_is_learned_while_training():
    torch.manual_seed(0)
    x = torch.randn(400, 3, dtype=torch.float64)
    y = x @ torch.randn(3, 1, dtype=torch.float64) + 0.2 * torch.randn(400, 1, dtype=torch.float64)
    model = torch.nn.Linear(3, 1).double()
    history = pt.train(
        model, (x, y), None, pt.GaussianNoise(), validation=None, epochs=200, lr=3e-2, batch_size=100, progress=False
    )
    assert isinstance(history.likelihood, pt.GaussianNoise)
    assert 0.17 < history.likelihood.value**-0.5 < 0.23
    fixed = pt.train(model, (x, y), None, pt.GaussianNoise(4.0), validation=None, epochs=1, progress=False)
    assert fixed.likelihood == pt.GaussianNoise(4.0)
