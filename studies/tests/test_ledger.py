"""The results file outlives whatever happens to the process that writes it."""

import pytest

from posterity_studies import Cell, Ledger, Record
from posterity_studies.errors import DamagedResults, ResultsBusy

CELLS = [Cell("toy", 1, {"n": n}) for n in range(3)]


def record(cell: Cell) -> Record:
    return Record(cell.study, cell.key, cell.arguments, {"x": [1.5, 2e-9]}, 0.1, {"torch": "2"})


@pytest.fixture
def filled(tmp_path):
    ledger = Ledger(tmp_path / "toy.jsonl")
    with ledger.writing():
        for cell in CELLS[:2]:
            ledger.append(record(cell))
    return ledger


def test_what_was_appended_is_read_back_in_the_order_asked_for(filled):
    again = Ledger(filled.path)
    assert again.of(reversed(CELLS)) == [record(CELLS[1]), record(CELLS[0])]
    assert again.missing(CELLS) == [CELLS[2]]


def test_torn_last_line_is_dropped_wherever_the_tear(filled):
    whole = filled.path.read_bytes()
    line = whole.split(b"\n")[0]
    for tear in range(1, len(line) + 1):
        filled.path.write_bytes(whole + line[:tear])
        assert len(Ledger(filled.path).records) == 2
        with filled.writing():
            assert filled.path.read_bytes() == whole


def test_reading_leaves_a_torn_line_alone_for_the_run_that_may_be_writing_it(filled):
    with filled.path.open("ab") as file:
        file.write(b'{"study":')
    before = filled.path.read_bytes()
    Ledger(filled.path)
    assert filled.path.read_bytes() == before


@pytest.mark.parametrize("damage", [b"{not json}", b"", b"3", b'{"study":"toy"}', b"\xff\xfe"])
def test_damaged_line_in_the_middle_is_named_by_its_number(filled, damage):
    first, second, end = filled.path.read_bytes().split(b"\n")
    filled.path.write_bytes(b"\n".join([first, damage, second, end]))
    with pytest.raises(DamagedResults, match=r"toy\.jsonl, line 2 "):
        Ledger(filled.path)


def test_second_writer_is_refused_and_the_file_is_free_again_afterwards(filled):
    other = Ledger(filled.path)
    with filled.writing(), pytest.raises(ResultsBusy, match="another run"), other.writing():
        pass
    with other.writing():
        other.append(record(CELLS[2]))
    assert Ledger(filled.path).missing(CELLS) == []


def test_numbers_that_json_cannot_hold_are_refused_before_anything_is_written(filled):
    before = filled.path.read_bytes()
    with filled.writing(), pytest.raises(ValueError, match="JSON"):
        filled.append(Record("toy", "k", {}, {"x": float("nan")}, 0.0, {}))
    assert filled.path.read_bytes() == before
