"""The stream of pictures: its parts, the paper's own stream on a miniature, forgetting that is looked for, and the table."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from posterity.errors import NoDataSet
from posterity.idx import data_root
from posterity_studies.shared import picture_streams, published
from posterity_studies.shared.columns import made_up_columns
from posterity_studies.shared.picture_streams import SETS, made_up, of_sets, of_washington
from posterity_studies.shared.washington import LATER
from posterity_studies.studies.continual_large import cells
from posterity_studies.studies.continual_large.methods import NAMES, PLAIN_RATES, STRENGTHS, method, prior

real = pytest.mark.skipif(data_root() is None, reason="real data is read from POSTERITY_DATA")
QUICK = {"epochs": 2, "stop_after": 2, "batch_size": 8}


@pytest.fixture
def washington(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two instances of each category, two frames of each view."""
    for category in (*LATER, "ball"):
        for instance in (1, 2):
            folder = tmp_path / "wrgbd" / category / f"{category}_{instance}"
            folder.mkdir(parents=True)
            for view in (1, 2, 4):
                for frame in (1, 6):
                    picture = np.full((6, 9, 3), 100 * instance + frame, np.uint8)
                    Image.fromarray(picture).save(folder / f"{category}_{instance}_{view}_{frame}_crop.png")
    monkeypatch.setenv("POSTERITY_DATA", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("name", ["learned", "pnn 1e-05"])
def test_the_papers_own_stream_runs_on_a_miniature(
    washington: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(cells, "imagenet_columns", made_up_columns)
    arguments = {"stream": "washington", "seed": 0, "method": name, "size": 8, "batch": 4, "epochs": 1, "draws": 1}
    arguments["columns"] = "whole"
    values = cells.cell(arguments | {"strengths": 1}, torch.Generator())
    assert [len(values[measure]) for measure in ("accuracy", "nll", "ece")] == [6, 6, 6]
    assert values["tested"] == [4] * 6
    assert values["changed"] == 0


def test_pictures_of_washington_are_normalised(washington: Path) -> None:
    x, label = of_washington(8)[1].train[0]  # type: ignore[index]
    assert (label, tuple(x.shape)) == (0, (3, 8, 8))
    assert float(x.min()) < 0  # below the mean of ImageNet's pixels


def test_without_the_folder_it_is_said_where_it_comes_from(tmp_path: Path) -> None:
    with pytest.raises(NoDataSet, match="wrgbd"):
        of_washington(8, tmp_path)


@real
def test_sets_come_in_order_and_no_picture_is_in_two_parts() -> None:
    stream = of_sets(0, 32, classes=(3, 2), shots=2, held=1, tested=2)
    assert [task.name for task in stream] == list(SETS)
    for number, task in enumerate(stream):
        assert task.classes == (3 if number == 0 else 2)
        parts = [task.train, task.validation, task.test]
        assert [len(y) for _, y in parts] == [task.classes * n for n in (2, 1, 2)]  # type: ignore[misc]
        x = torch.cat([x for x, _ in parts]).flatten(1)  # type: ignore[misc]
        assert len(torch.unique(x, dim=0)) == len(x)


@real
def test_maps_take_the_place_of_pictures_one_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(picture_streams, "third_stage", lambda: None)
    monkeypatch.setattr(picture_streams, "features", lambda _, pictures, size: pictures.labels[:, None].float())
    sizes = {"classes": (3, 2), "shots": 2, "held": 1, "tested": 2}
    for task in of_sets(1, 32, **sizes, maps=True):  # type: ignore[arg-type]
        x, y = task.train  # type: ignore[misc]
        assert [len(x[y == c].unique()) for c in range(task.classes)] == [1] * task.classes
        assert len(x.unique()) == task.classes


def test_predictions_that_change_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A learner that spoils its first column when the last comes is found out."""
    stream = made_up(0)
    chosen = method("pnn 1e-05", made_up_columns(), QUICK, 0, draws=1, strengths=1)
    learner, draft = chosen.learner, chosen.learner.draft

    def spoil(task, **options):
        if task.name == stream[5].name:
            with torch.no_grad():
                learner.learned[0].column.module.fc.bias.add_(1e-6)
        return draft(task, **options)

    monkeypatch.setattr(learner, "draft", spoil)
    assert cells.run(chosen, stream)["changed"] == len(stream[0].test[1])  # type: ignore[index]


def test_priors_are_the_papers_three() -> None:
    learned = made_up_columns().prior
    for kind in STRENGTHS:
        made = prior(kind, learned, 0.5, 2.0)
        for name, matrix in made.precision.items():
            same = bool((made.mean[name] == learned.mean[name]).all())
            assert same == (kind != "zero")
            flat = 2.0 * matrix.size
            trace = float(learned.adjusted(0.5, 0.0).precision[name].trace()) if kind == "learned" else 0.0
            assert float(matrix.trace()) == pytest.approx(flat + trace, rel=1e-5)


def test_a_plain_column_takes_the_rate_of_least_validation_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = method("pnn 1e-05", made_up_columns(), QUICK, 0, draws=1, strengths=2)
    drafts, draft = [], chosen.learner.draft

    def noted(task, **options):
        drafts.append((draft(task, **options), chosen.learner.training["lr"]))
        return drafts[-1][0]

    monkeypatch.setattr(chosen.learner, "draft", noted)
    chosen.learn(made_up(0)[0])
    assert [rate for _, rate in drafts] == list(PLAIN_RATES[:2])
    best = min((entry for entry, _ in drafts), key=lambda entry: entry.history.final.validation_nll)
    assert chosen.learner.learned == (best,)


def test_dropout_leaves_the_network_it_came_from_alone() -> None:
    origin = made_up_columns()
    learner = method("dropout", origin, QUICK, 0, draws=2, strengths=1).learner
    assert any(isinstance(m, torch.nn.Dropout) for m in learner.architecture.template.modules())
    assert not any(isinstance(m, torch.nn.Dropout) for m in origin.model.modules())


def test_the_papers_table_is_whole_and_its_averages_are_its_own() -> None:
    assert published.STREAM.keys() == NAMES.keys()
    for row in published.STREAM.values():
        *tasks, average = (mean for mean, _ in row)
        assert sum(tasks) / len(tasks) == pytest.approx(average, abs=0.11)
