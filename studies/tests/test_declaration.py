"""What makes a cell the same cell."""

import torch

from posterity_studies import Cell, Preset, find, grid


def test_key_depends_on_study_version_and_arguments_but_not_on_their_order():
    cell = Cell("s", 1, {"a": 1, "b": [2.0, 3.0]})
    assert cell.key == Cell("s", 1, {"b": [2.0, 3.0], "a": 1}).key
    others = [Cell("t", 1, cell.arguments), Cell("s", 2, cell.arguments), Cell("s", 1, {"a": 2, "b": [2.0, 3.0]})]
    assert len({cell.key, *(other.key for other in others)}) == 4


def test_every_cell_has_randomness_of_its_own():
    draws = [torch.rand(3, generator=Cell("s", 1, {"seed": seed}).generator()) for seed in (0, 0, 1)]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])


def test_grid_is_every_combination_with_the_last_axis_fastest():
    assert grid(a=[1, 2], b="xy") == [{"a": 1, "b": "x"}, {"a": 1, "b": "y"}, {"a": 2, "b": "x"}, {"a": 2, "b": "y"}]


def test_smoke_cells_of_the_kronecker_study_are_among_the_papers():
    study = find("kronecker")
    smoke, paper = ({cell.key for cell in study.cells(preset)} for preset in (Preset.smoke, Preset.paper))
    assert smoke < paper
    assert len(paper) == len(study.grid[Preset.paper]) == 18 * 10 + 8 + 2


def test_the_learned_priors_recipe_is_part_of_the_key_and_leaves_the_draws_alone():
    plain, first, second = (Cell("s", 1, {"a": 1}, source) for source in ("", "mnist-10-aa", "mnist-10-bb"))
    assert len({plain.key, first.key, second.key}) == 3
    draws = [torch.rand(3, generator=cell.generator()) for cell in (plain, first, second)]
    assert torch.equal(draws[0], draws[1])
    assert torch.equal(draws[0], draws[2])
