"""The Kronecker study, in its smoke preset, against the figures the paper prints."""

import math
from pathlib import Path

import pytest
import torch

from posterity.algebra import Kronecker
from posterity_studies import Preset, Record, find, latest, run, save_figure
from posterity_studies.folders import SHIPPED
from posterity_studies.shared import published
from posterity_studies.studies.kronecker import cells
from posterity_studies.studies.kronecker.reading import Sample, curve, iterations, overall, pool

STUDY = find("kronecker")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("results")


@pytest.fixture(scope="module")
def records(folder):
    return run(STUDY, Preset.smoke, folder)


def agrees(ours: Sample, published: float) -> bool:
    """Within four standard errors of the difference, either way: one in 16,000 by chance."""
    return abs(ours.mean - published) <= 4 * math.sqrt(2) * ours.noise


@pytest.mark.parametrize("method", ["power", "sum"])
def test_error_by_size_is_the_papers_when_measured_as_its_authors_do(records, method):
    theirs = {point.x: point.middle for point in published.kronecker_curve("size", method)}
    ours = curve(records, "size", f"{method}_guarded")
    assert list(ours) == [2, 5, 10]
    for size, sample in ours.items():
        assert agrees(sample, theirs[size]), (size, sample, theirs[size])
        assert sample.mean == pytest.approx(theirs[size], rel=0.1)


@pytest.mark.parametrize("method", ["power", "sum"])
@pytest.mark.parametrize("terms", [2, 9])
def test_error_by_number_of_terms_is_the_papers(records, terms, method):
    theirs = {point.x: point.middle for point in published.kronecker_curve("terms", method)}
    assert agrees(curve(records, "terms", method)[terms], theirs[terms])


def test_convergence_table_is_reproduced_to_its_printed_digits(records):
    ours = iterations(records, "positive", alike=True)
    for sample, (mean, std) in zip(ours, published.ITERATIONS, strict=True):
        assert sample.mean == pytest.approx(mean, abs=4 * std / 10 + 0.0005)
        assert sample.std == pytest.approx(std, rel=0.2, abs=0.0005)


def test_guard_of_the_authors_script_explains_the_lower_error_of_the_paper(records):
    for method in ("power", "sum"):
        exact, guarded = overall(records, method), overall(records, f"{method}_guarded")
        assert exact.mean > 1.1 * guarded.mean
    exact, guarded = curve(records, "gamma", "power"), curve(records, "gamma", "power_guarded")
    assert guarded[1.0].mean == pytest.approx(exact[1.0].mean, rel=1e-3)
    assert guarded[1e-10].mean < 0.2 * exact[1e-10].mean


def test_closed_form_and_power_method_find_the_same_product(records):
    for panel in ("size", "gamma", "terms"):
        power, closed = curve(records, panel, "power"), curve(records, panel, "nearest")
        assert [s.mean for s in power.values()] == pytest.approx([s.mean for s in closed.values()], rel=1e-6)


def test_pooled_samples_are_the_sample_of_everything():
    torch.manual_seed(0)
    parts = [torch.randn(n, dtype=torch.float64) + n for n in (5, 7, 20)]
    samples = [Sample(float(x.mean()), float(x.std()), len(x), 0.0) for x in parts]
    everything = torch.cat(parts)
    together = pool(samples)
    assert (together.mean, together.std) == pytest.approx((float(everything.mean()), float(everything.std())))
    assert together.count == 32


def test_norm_without_a_dense_matrix_is_the_dense_norm():
    torch.manual_seed(0)
    left, right = (x @ x.mT for x in torch.randn(2, 6, 4, 4, dtype=torch.float64))
    total = Kronecker(left[:3], right[:3]) + Kronecker(left[3:], right[3:])
    assert torch.allclose(cells._norm(total), torch.linalg.matrix_norm(total.dense()), rtol=1e-12)


def test_values_are_rounded_to_six_digits_at_every_scale():
    values = torch.tensor([0.0, 1.23456789e-13, 9.999999e-3, 123456.789], dtype=torch.float64)
    assert cells._rounded(values) == [0.0, 1.23457e-13, 0.01, 123457.0]


def test_tables_and_figure_can_be_made_from_any_part_of_the_results(records, folder):
    by_experiment: dict[str, list[Record]] = {}
    for record in records:
        by_experiment.setdefault(record.arguments["experiment"], []).append(record)
    for some in (*by_experiment.values(), records[:1], []):
        assert all(len(row) == len(table.columns) for table in STUDY.tables(some) for row in table.rows)
        STUDY.draw(some)
    assert save_figure(STUDY, records, folder).stat().st_size > 10_000


def test_documentation_shows_the_committed_results():
    root = Path(__file__).parents[2]
    text = (root / "docs/studies/kronecker.md").read_text()
    preset, committed = latest(STUDY, SHIPPED)
    assert (preset, len(committed)) == (Preset.paper, len(STUDY.grid[Preset.paper]))
    for table in STUDY.tables(committed):
        for row in table.rows:
            assert f"| {' | '.join(row)} |" in text, f"docs/studies/kronecker.md lacks the row {row}"
    for note in STUDY.notes:
        assert note in text
