"""The study's courses and tables, on made streams and on the results that are committed."""

from __future__ import annotations

import pytest
import torch
from made import HEAD, LATERALS, learned_prior, network, task

from posterity import BPNN, Scales
from posterity.progressive import Stream
from posterity_studies import find
from posterity_studies.engine.declaration import Preset, Record
from posterity_studies.engine.ledger import Ledger
from posterity_studies.folders import SHIPPED
from posterity_studies.shared.continual import EWC, PNN, JointNetwork
from posterity_studies.shared.prototypes import Prototypes
from posterity_studies.studies.continual.cells import _values, run_stream
from posterity_studies.studies.continual.declaration import STUDY as CONTINUAL
from posterity_studies.studies.continual.methods import INCREMENTAL, NAMES, SCALED, Method, _set
from posterity_studies.studies.continual.reading import FULL

QUICK = {"epochs": 5, "lr": 1e-2, "validation": None}
STREAM = Stream("made", [task(k, classes=2) for k in range(3)])


def test_the_study_is_found_by_name_and_asks_only_for_methods_that_there_are() -> None:
    assert find("continual-small") is CONTINUAL
    for preset in Preset:
        for cell in CONTINUAL.cells(preset):
            known = NAMES | SCALED | INCREMENTAL if cell.arguments["protocol"] == "small" else FULL
            assert cell.arguments["method"] in known


@pytest.mark.parametrize("kind", ["bpnn", "pnn", "ewc", "joint"])
def test_every_kind_of_learner_has_a_course(kind: str) -> None:
    model = network()
    strong, weak = learned_prior(model), learned_prior(model).tempered(10.0)
    methods = {
        "bpnn": lambda: Method(
            BPNN(model, strong, LATERALS, HEAD, training=QUICK, samples=4, scales=Scales()),
            priors=[strong, weak],
        ),
        "pnn": lambda: Method(
            PNN(model, LATERALS, HEAD, training=QUICK), [_set("weight_decay", d) for d in (0.0, 0.1)]
        ),
        "ewc": lambda: Method(EWC(model, HEAD, training=QUICK), [_set("strength", s) for s in (0.1, 10.0)]),
        "joint": lambda: Method(JointNetwork(model, HEAD, training=QUICK), [_set("precision", p) for p in (0.1, 10.0)]),
    }
    rows, chosen, held = run_stream(methods[kind](), STREAM)
    values = _values(rows, chosen, held)
    assert 0 <= values["acc"] <= 1
    assert len(values["at the end"]) == 3
    assert all(chosen)
    if kind in ("bpnn", "pnn"):
        assert values["bwt"] == values["forgetting"] == 0
    if kind == "joint":
        assert values["bwt"] is None


def made_records() -> list[Record]:
    records = []
    for cell in CONTINUAL.cells(Preset.cpu):
        generator = torch.Generator().manual_seed(hash(cell.arguments["method"]) % 1000 + cell.arguments["seed"])
        accuracy = (0.9 + 0.1 * torch.rand(5, generator=generator)).tolist()
        values = {
            "acc": sum(accuracy) / 5, "bwt": 0.0, "forgetting": 0.0, "nll": 0.1, "ece": 0.02, "when learned": accuracy,
            "at the end": accuracy, "held out": accuracy[0], "chosen": [""] * 5,
        }  # fmt: skip
        if cell.arguments["method"] in INCREMENTAL:
            values = {"acc": accuracy[0], "task": accuracy[1]}
        if cell.arguments["method"] == "joint":
            values |= {"bwt": None, "forgetting": None, "when learned": None}
        records.append(Record(cell.study, cell.key, cell.arguments, values, 1.0, {}))
    return records


def test_tables_and_figure_of_whole_and_of_partial_results() -> None:
    records = made_records()
    for some in (records, records[:3], records[-2:]):
        for table in CONTINUAL.tables(some):
            assert table.rows
            assert all(len(row) == len(table.columns) for row in table.rows)
        assert CONTINUAL.draw(some).axes
    *small, full = CONTINUAL.tables(records)
    assert [len(table.rows) for table in small[:6]] == [len(NAMES) + 1] * 3 + [len(SCALED)] * 3  # and PNN by validation
    assert [row[0] for row in small[6].rows] == list(INCREMENTAL.values())
    verdict = CONTINUAL.verdict(records)
    assert "split fashion_mnist, 10 a class: " in verdict.why
    assert [row[0] for row in full.rows][-2:] == ["S-FSVI (published)", "VCL (published)"]


def test_committed_results_are_of_this_study_and_forget_nothing_where_columns_are() -> None:
    path = SHIPPED / "continual-small.jsonl"
    if not path.exists():
        pytest.skip("no results are committed yet")
    known = {cell.key for preset in Preset for cell in CONTINUAL.cells(preset)}
    records = Ledger(path).records
    assert records.keys() <= known
    for record in records.values():
        if record.arguments["method"].split()[0] in ("bpnn", "pnn", "dropout", "alone"):
            assert record.values["bwt"] == 0


def test_prototypes_of_classes_are_the_same_whatever_order_they_come_in_and_find_far_clusters() -> None:
    draw = torch.Generator().manual_seed(0)
    centres = 8 * torch.randn(4, 5, generator=draw)
    y = torch.arange(80) % 4
    x = centres[y] + torch.randn(80, 5, generator=draw)
    early, late = y < 2, y >= 2
    one = Prototypes.none(4, 5).after(x[early], y[early]).after(x[late], y[late])
    other = Prototypes.none(4, 5).after(x[late], y[late]).after(x[early], y[early])
    torch.testing.assert_close(one.probabilities(x), other.probabilities(x))
    assert bool((one.probabilities(x).argmax(-1) == y).all())
    assert one.noise == pytest.approx(1.0, rel=0.3)
    seen = Prototypes.none(4, 5).after(x[early], y[early]).probabilities(x)
    assert not seen[:, 2:].any()
