"""Bayesian columns: nothing forgotten, priors as they should be, the same again after loading."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from made import HEAD, LATERALS, QUICK, bpnn, dice, learned_prior, network, task

from posterity import BPNN, KFAC, Diagonal, GaussianNoise, Scales, Task, isotropic
from posterity.curvature import EKFAC, KFOC, ExactLabels
from posterity.errors import BadLearnerFile, Overlap
from posterity.gaussian.bundle import read_bundle
from posterity.laplace import train
from posterity.pacbayes import Landscape, TunedScales, one_number
from posterity.progressive import Stream
from posterity.progressive.storage import _present
from posterity_studies.shared.continual import follow


def state(learner: BPNN) -> dict[str, torch.Tensor]:
    return {
        f"{t} {part} {name}": tensor.clone()
        for t, one in enumerate(learner.learned)
        for part, module in (("column", one.column.module), ("laterals", one.column.laterals))
        for name, tensor in module.state_dict().items()
    }


def same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(first[name], second[name]) for name in first)


def test_earlier_tasks_are_bit_identical_after_every_later_one() -> None:
    learner = bpnn()
    weights: dict[str, torch.Tensor] = {}
    predictions: dict[str, torch.Tensor] = {}
    for number in range(4):
        coming = task(number, classes=2 + number % 3)
        learner.learn(coming, progress=False)
        assert same(weights, state(learner))
        weights = state(learner)
        x = task(0).test[0]  # type: ignore[index]
        for name, before in predictions.items():
            assert torch.equal(learner.predict(x, name, generator=dice(5)).probs, before)
        predictions[coming.name] = learner.predict(x, coming.name, generator=dice(5)).probs


def test_lateral_priors_are_the_posteriors_they_come_from_with_their_scales() -> None:
    learner = bpnn(scales=Scales(alpha=2.0, beta=0.5, temperature=0.1))
    for number in range(3):
        learner.learn(task(number), progress=False)
    for i in (0, 1):
        for k, path in enumerate(LATERALS):
            source = learner.learned[i].posterior.restricted([f"columns.{i}.{path}"]).compress()
            prior = learner.learned[2].prior
            name = f"laterals.2.{i}.{k}"
            assert torch.equal(prior.mean[name], source.mean[f"columns.{i}.{path}"])
            torch.testing.assert_close(
                prior.precision[name].dense(), source.precision[f"columns.{i}.{path}"].dense(), rtol=1e-12, atol=0
            )
    # The temperature is in it: the source's precision is divided by 0.1.
    source, again = learner.learned[0], bpnn(scales=Scales(alpha=2.0, beta=0.5))
    again.learn(task(0), progress=False)
    warm = again.learned[0].posterior.precision["columns.0.2"].trace()
    torch.testing.assert_close(source.posterior.precision["columns.0.2"].trace(), warm / 0.1, rtol=1e-9, atol=0)


def test_a_column_has_the_learned_prior_and_a_head_of_another_size_an_isotropic_one() -> None:
    learner = bpnn(head_precision=3.0)
    learned = learner.learn(task(1, classes=5), progress=False)
    for name in ("0", "2", "4"):
        assert learned.prior.precision[f"columns.0.{name}"] is learner.prior.precision[name]
    assert float(learned.prior.precision["columns.0.6"].trace()) == pytest.approx(3.0 * 5 * 9, rel=1e-6)
    assert not learned.prior.mean["columns.0.6"].any()
    same_size = bpnn().learn(task(1, classes=3), progress=False)
    assert same_size.prior.mean["columns.0.6"].any()


def test_earlier_columns_are_drawn_anew_for_every_batch_and_still_in_evaluation() -> None:
    learner = bpnn()
    learner.learn(task(0), progress=False)
    column = learner.architecture.grow([learner.learned[0].column], 3, 0)
    network = learner._in_training(column, seed=1)
    x = torch.randn(6, 4)
    network.train()
    first, second = network(x), network(x)
    assert not torch.allclose(first, second)
    network.eval()
    assert torch.equal(network(x), network(x))
    network.train()
    network.step.zero_()
    assert torch.equal(network(x), first)  # a draw is a function of the seed and the batch's number


def test_draws_of_earlier_columns_have_their_posteriors_mean_and_spread() -> None:
    learner = bpnn()
    learner.learn(task(0), progress=False)
    draws = learner._in_training(learner.architecture.grow([learner.learned[0].column], 3, 0), 1).draws
    assert draws is not None
    found = torch.stack([draws.at(k)["columns.0.2.bias"] for k in range(4000)]).double()
    posterior = learner.learned[0].posterior
    covariance = torch.linalg.inv(posterior.precision["columns.0.2"].dense()).diagonal().view(8, 9)[:, -1]
    torch.testing.assert_close(found.mean(0), posterior.mean["columns.0.2"][:, -1].double(), rtol=0, atol=0.06)
    torch.testing.assert_close(found.var(0), covariance, rtol=0.12, atol=0)


def test_no_block_is_drawn_that_reaches_no_lateral() -> None:
    """Heads, and what lies behind the input of the last lateral layer, would be drawn unseen."""
    learner = bpnn()
    for number in range(2):
        learner.learn(task(number), progress=False)
    earlier = [one.column for one in learner.learned]
    network = learner._in_training(learner.architecture.grow(earlier, 3, 0), seed=1).train()
    network(torch.randn(4, 4))
    assert network.draws is not None
    assert set(network.draws.mean) == {"columns.0.0", "columns.0.2", "columns.1.0", "columns.1.2", "laterals.1.0.0"}


def test_only_new_blocks_count_in_the_divergence() -> None:
    learner = bpnn()
    for number in range(3):
        learner.learn(task(number), progress=False)
    joint = learner.posterior("task 2").kl_by_block(learner.prior_of("task 2"))
    assert all(abs(float(kl)) < 1e-6 for name, kl in joint.items() if name.split(".")[1] != "2")
    new = sum(float(kl) for name, kl in joint.items() if name.split(".")[1] == "2")
    assert new == pytest.approx(learner.learned[2].kl, rel=1e-9)
    for name in joint:
        if name.split(".")[1] != "2":
            assert learner.posterior("task 2").precision[name] is learner.prior_of("task 2").precision[name]


def test_the_trace_of_frozen_columns_is_in_the_risk_that_scales_are_tuned_on(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = bpnn(scales="catoni")
    learner.learn(task(0), progress=False)
    bare: list[Landscape] = []
    tuned: list[Landscape] = []

    def noted(*arguments: object) -> Landscape:
        bare.append(Landscape.of(*arguments))  # type: ignore[arg-type]
        return bare[-1]

    def watched(landscape: Landscape, bound: str) -> TunedScales:
        tuned.append(landscape)
        return one_number(landscape, bound)  # type: ignore[arg-type]

    monkeypatch.setattr("posterity.progressive.bpnn.Landscape", SimpleNamespace(of=noted))
    monkeypatch.setattr("posterity.progressive.bpnn.one_number", watched)
    learner.learn(task(1), progress=False)
    assert tuned[0].nll - bare[0].nll == pytest.approx(0.5 * 64 * learner.learned[0].trace, rel=1e-9)
    assert learner.learned[0].trace > 0


def test_the_trace_of_a_column_is_that_of_its_fisher_and_covariance() -> None:
    learner = bpnn()
    learned = learner.learn(task(0), progress=False)
    # With α = β = τ = 1 the Fisher is the posterior's precision less the prior's: tr(FΣ) = n − tr(PΣ).
    total = sum(
        learned.posterior.precision[name].size
        - float(learned.posterior.precision[name].trace_of(learned.prior.precision[name]))
        for name in learned.prior.blocks
    )
    assert learned.trace * 64 == pytest.approx(total, rel=1e-4)


@pytest.mark.parametrize("scaling", ["evidence", "mcallester", "maurer"])
def test_every_way_of_scaling_learns(scaling: str) -> None:
    learner = bpnn(scales=scaling)
    for number in range(2):
        learner.learn(task(number), progress=False)
    assert learner.learned[1].kl > 0


def test_the_temperature_of_least_validation_loss_is_taken() -> None:
    learner = bpnn(temperatures=(100.0, 1e-6))
    cold = bpnn(temperatures=(1e-6,))
    learner.learn(task(0), progress=False)
    cold.learn(task(0), progress=False)
    first, second = (one.learned[0].posterior.precision["columns.0.2"].trace() for one in (learner, cold))
    assert float(first) == pytest.approx(float(second), rel=1e-9)


def test_a_task_can_be_a_regression_beside_classes() -> None:
    learner = bpnn()
    learner.learn(task(0), progress=False)
    x = torch.randn(64, 4)
    data = (x, x[:, :2].sin())
    learner.learn(Task("sines", data, data, data, 2, GaussianNoise(10.0)), progress=False)
    assert learner.predict(x, "sines", generator=dice()).mean.shape == (64, 2)
    assert learner.predict(x, "task 0", generator=dice()).probs.shape == (64, 3)
    both = follow(bpnn(), [task(0), Task("sines", data, data, data, 2, GaussianNoise(10.0))], progress=False)
    assert both.matrix[1][1] is not None
    assert both.matrix[1][1].nll == both.matrix[1][1].nll


def test_linearised_prediction_goes_through_all_columns() -> None:
    learner = bpnn()
    for number in range(2):
        learner.learn(task(number), progress=False)
    probs = learner.predict(task(0).test[0], "task 1", method="linearised").probs  # type: ignore[index]
    torch.testing.assert_close(probs.sum(-1), torch.ones(64), rtol=0, atol=1e-5)


def test_a_stream_learns_something_and_forgets_nothing() -> None:
    learner = bpnn(training={"epochs": 30, "lr": 2e-2, "batch_size": 64}, temperatures=(1.0, 1e-3))
    found = follow(learner, Stream("three", [task(k, classes=2, n=128) for k in range(3)]), progress=False)
    assert 0.8 < found.acc <= 1
    assert found.bwt == 0
    assert found.forgetting == 0
    assert list(found.parameters) == ["task 0", "task 1", "task 2"]
    first, _, third = found.parameters.values()
    assert third == first + 2 * 2 * (8 * 8 + 8)
    assert found.bytes["task 2"] > 4 * third


# --- files -----------------------------------------------------------------------------------------


def test_saved_and_loaded_with_twelve_columns_the_draws_are_the_same(tmp_path: Path) -> None:
    model = network()
    options = {"training": {"epochs": 1, "lr": 1e-2}, "samples": 10, "scales": Scales(), "estimator": KFAC()}
    learner = BPNN(model, learned_prior(model), ["2"], HEAD, **options)
    for number in range(12):
        learner.learn(task(number, n=16), progress=False)
    learner.save(tmp_path / "learner")
    again = BPNN.load(tmp_path / "learner", network(), estimator=KFAC())
    assert again.tasks == learner.tasks
    x = torch.randn(5, 4)
    for name in ("task 0", "task 1", "task 10", "task 11"):
        first, second = (one.predict(x, name, generator=dice(3), keep_draws=True).draws for one in (learner, again))
        assert first is not None
        assert second is not None
        assert torch.equal(first, second)
    assert same(state(learner), state(again))


def test_a_stream_taken_up_again_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    whole, part = bpnn(), bpnn()
    for number in range(2):
        whole.learn(task(number), progress=False)
        part.learn(task(number), progress=False)
    part.save(tmp_path)
    part = BPNN.load(tmp_path, network())
    for learner in (whole, part):
        learner.learn(task(2), progress=False)
    assert same(state(whole), state(part))
    x = torch.randn(5, 4)
    first, second = (one.predict(x, "task 2", generator=dice(3)).probs for one in (whole, part))
    assert torch.equal(first, second)


def test_training_stopped_inside_a_column_goes_on_with_the_same_draws(tmp_path: Path) -> None:
    learner = bpnn()
    learner.learn(task(0), progress=False)
    coming, ends = task(1), []
    for interrupted in (False, True):
        column = learner.architecture.grow([learner.learned[0].column], 3, 0)
        options = {"validation": None, "progress": False, "stop_after": 99, "lr": 1e-2}
        if interrupted:
            options["checkpoint"] = tmp_path / "state.pt"
            train(learner._in_training(column, 7), coming.train, epochs=2, generator=dice(), **options)
            column = learner.architecture.grow([learner.learned[0].column], 3, 0)
        train(learner._in_training(column, 7), coming.train, epochs=5, generator=dice(), **options)
        ends.append(column.module.state_dict())
    assert same(*ends)


def test_saving_again_leaves_the_columns_that_are_there(tmp_path: Path) -> None:
    learner = bpnn()
    learner.learn(task(0), progress=False)
    learner.save(tmp_path)
    old = tmp_path / "column-000.safetensors"
    before = old.stat().st_mtime_ns, old.read_bytes()
    learner.learn(task(1), progress=False)
    learner.save(tmp_path)
    assert (old.stat().st_mtime_ns, old.read_bytes()) == before
    assert BPNN.load(tmp_path, network()).tasks == ("task 0", "task 1")
    assert not list(tmp_path.glob("*.tmp")) + list(tmp_path.glob(".*.tmp"))


def test_saving_again_repairs_a_damaged_column(tmp_path: Path) -> None:
    learner = bpnn()
    for number in range(2):
        learner.learn(task(number), progress=False)
    learner.save(tmp_path)
    (tmp_path / "column-000.safetensors").unlink()
    (tmp_path / "column-001.safetensors").write_bytes(b"half a file")
    learner.save(tmp_path)
    assert same(state(learner), state(BPNN.load(tmp_path, network())))


def test_a_learner_of_another_network_or_with_damaged_files_is_refused(tmp_path: Path) -> None:
    learner = bpnn()
    learner.learn(task(0), progress=False)
    learner.save(tmp_path)
    with pytest.raises(BadLearnerFile, match="the network given does not fit it"):
        BPNN.load(tmp_path, torch.nn.Sequential(torch.nn.Linear(4, 2)))
    with pytest.raises(BadLearnerFile, match=r"learner\.safetensors: there is no such file"):
        BPNN.load(tmp_path / "elsewhere", network())
    column = tmp_path / "column-000.safetensors"
    data = bytearray(column.read_bytes())
    data[-1] ^= 1
    column.write_bytes(data)
    with pytest.raises(BadLearnerFile, match="is not the file that was saved"):
        BPNN.load(tmp_path, network())
    column.unlink()
    with pytest.raises(BadLearnerFile, match=r"column-000\.safetensors: there is no such file"):
        BPNN.load(tmp_path, network())


@pytest.mark.parametrize("file", ["column-000", "column-001"])
def test_a_file_of_another_learner_is_refused(tmp_path: Path, file: str) -> None:
    """Each file is whole: only the learner's own can tell that it does not belong here."""
    for folder, seed in (("one", 0), ("two", 1)):
        learner = bpnn(seed=seed, scales=Scales(temperature=1 + seed))
        learner.prior = learner.prior.tempered(1 + seed)
        for number in range(2):
            learner.learn(task(number), progress=False)
        learner.save(tmp_path / folder)
    name = f"{file}.safetensors"
    (tmp_path / "one" / name).write_bytes((tmp_path / "two" / name).read_bytes())
    with pytest.raises(BadLearnerFile, match=rf"{name} is not the file that was saved"):
        BPNN.load(tmp_path / "one", network())


@pytest.mark.parametrize("change", [b'\\"seed\\":0', b'\\"head_precision\\":1.0', b'\\"samples\\":10'])
def test_settings_that_were_changed_are_refused(tmp_path: Path, change: bytes) -> None:
    learner = bpnn()
    learner.learn(task(0), progress=False)
    learner.save(tmp_path)
    path = tmp_path / "learner.safetensors"
    content = path.read_bytes()
    assert content.count(change) == 1
    path.write_bytes(content.replace(change, change[:-1] + b"7"))
    with pytest.raises(BadLearnerFile, match="does not match its seal"):
        BPNN.load(tmp_path, network())


@pytest.mark.parametrize("wrong", [b"", b"{", b'{"format": 3, "seed": "x"}', "a prior", "a column"])
def test_a_file_that_is_not_a_learners_is_refused(tmp_path: Path, wrong: bytes | str) -> None:
    path, learner = tmp_path / "learner.safetensors", bpnn()
    if isinstance(wrong, bytes):
        path.write_bytes(wrong)
    elif wrong == "a prior":
        learner.prior.save(path)
    else:
        learner.learn(task(0), progress=False)
        learner.save(tmp_path)
        path.write_bytes((tmp_path / "column-000.safetensors").read_bytes())
    with pytest.raises(BadLearnerFile, match=str(tmp_path)):
        BPNN.load(tmp_path, network())


@pytest.mark.parametrize("now", [EKFAC(), KFOC(labels=ExactLabels())])
def test_files_of_earlier_versions_name_labels_as_they_did_then(now) -> None:
    then = repr(now).replace("Labels(", "(")
    assert then != repr(now)
    assert _present(then) == _present(repr(now)) == repr(now)


def test_what_a_file_cannot_hold_has_to_be_given_again(tmp_path: Path) -> None:
    model = network()
    options = {"optimiser": lambda p: torch.optim.SGD(p, 0.1)}
    prior = isotropic(model, 1.0, "model")
    learner = BPNN(model, prior, LATERALS, HEAD, estimator=Diagonal(), training=QUICK | options)
    learner.learn(task(0), progress=False)
    learner.save(tmp_path)
    with pytest.raises(BadLearnerFile, match="estimator="):
        BPNN.load(tmp_path, model)
    with pytest.raises(BadLearnerFile, match="optimiser"):
        BPNN.load(tmp_path, model, estimator=Diagonal())
    again = BPNN.load(tmp_path, model, estimator=Diagonal(), training=options)
    assert again.training["epochs"] == QUICK["epochs"]
    assert read_bundle(tmp_path / "learner.safetensors").raw["learner"]["to_be_given"] == ["optimiser"]


# --- certificates ----------------------------------------------------------------------------------


def test_a_certificate_counts_the_divergence_of_new_blocks_alone() -> None:
    learner = bpnn()
    tasks = [task(0), task(1)]
    for coming in tasks:
        learner.learn(coming, progress=False)
    generator = torch.Generator().manual_seed(0)
    found = learner.certify(tasks[1], confidence=0.9, passes=2, generator=generator, progress=False)
    assert found.confidence == 0.9
    assert 0 < found.bound <= 1
    old = [value for name, value in found.kl_by_block.items() if name.split(".")[1] == "0"]
    assert old
    assert set(old) == {0.0}
    assert found.kl == pytest.approx(learner.learned[1].kl, rel=1e-6)
    # The prior of task 1 has seen the data of task 0, and none of its own.
    with pytest.raises(Overlap):
        learner.certify(tasks[1], data=tasks[0].train, progress=False)


def test_prior_of_a_learned_prior_keeps_what_it_has_seen() -> None:
    model = network()
    learner = BPNN(model, learned_prior(model), LATERALS, HEAD, training=QUICK, scales=Scales())
    learner.learn(task(0), progress=False)
    assert learner.prior_of("task 0").provenance.vouchers == ("drawn at random",)
    assert learner.prior_of("task 0").provenance.count == 0
    known = learner.posterior("task 0").provenance
    assert known.is_known
    assert known.count == sum(len(part[1]) for part in (task(0).train, task(0).validation) if part is not None)
