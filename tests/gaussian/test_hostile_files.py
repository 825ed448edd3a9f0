"""No file makes `load` do anything but give a right Gaussian, or an error that has a name."""

from __future__ import annotations

import json
import os
import random
import struct

import pytest
import safetensors.torch
import torch
from crafting import joined, sealed, split, with_body, with_header, with_text
from gaussians import CARD, every, gaussian, same

import posterity as pt
from posterity.errors import (
    BadPriorFile,
    DamagedFile,
    FutureVersion,
    NotAPrior,
    OldFormat,
    OversizedFile,
    PosterityError,
    UnreadableFile,
)
from posterity.gaussian.container import HEADER_LIMIT

PRIOR = gaussian(every(2, 3), card=CARD)
NUMBER = {name: i for i, name in enumerate(PRIOR.blocks)}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("prior") / "prior.safetensors"
    PRIOR.save(path)
    return path.read_bytes()


@pytest.fixture
def refused(tmp_path):
    """That a file's bytes are refused by this error, with these words and the file's name."""

    def check(content: bytes, kind: type[BadPriorFile], *words: str, **options):
        path = tmp_path / "bad.safetensors"
        path.write_bytes(content)
        with pytest.raises(kind) as caught:
            pt.load(path, **options)
        assert type(caught.value) is kind
        for word in ("bad.safetensors", *words):
            assert word in str(caught.value)

    return check


def test_crafting_makes_good_files(data, tmp_path):
    outer, inner, body = split(data)
    (tmp_path / "a").write_bytes(joined(outer, inner, body))
    assert same(pt.load(tmp_path / "a"), PRIOR)


# --- damage ----------------------------------------------------------------------------------------


def mutated(data: bytes, chance: random.Random) -> bytes:
    """One small accident or forgery, in the header or in the tensors."""
    length = int.from_bytes(data[:8], "little")
    low, high = chance.choice([(0, 8), (8, 8 + length), (8 + length, len(data)), (0, len(data))])
    at = chance.randrange(low, high)
    match chance.choice(["flip", "flip", "cut", "insert", "remove", "swap", "write", "json"]):
        case "flip":
            return data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]
        case "cut":
            return data[:at]
        case "insert":
            return data[:at] + chance.randbytes(chance.choice([1, 8, 100])) + data[at:]
        case "remove":
            return data[:at] + data[at + chance.choice([1, 8, 100]) :]
        case "swap":
            other = chance.randrange(low, high)
            swapped = bytearray(data)
            swapped[at], swapped[other] = swapped[other], swapped[at]
            return bytes(swapped)
        case "write":
            return data[:at] + chance.choice([b"\0" * 8, b"\xff" * 8, b"NaN", b"-1", b'"', b"}"]) + data[at + 8 :]
    return edited_json(data, chance, seal=False)


def edited_json(data: bytes, chance: random.Random, seal: bool) -> bytes:
    """One value somewhere in the header replaced, dropped or repeated."""
    outer, inner, body = split(data)
    target = chance.choice([outer, inner, inner, inner])
    spots = []

    def walk(node):
        for key in node if isinstance(node, dict) else range(len(node)):
            if key not in ("__metadata__", "sha256"):
                spots.append((node, key))
                if isinstance(node[key], (dict, list)):
                    walk(node[key])

    walk(target)
    node, key = chance.choice(spots)
    match chance.randrange(8):
        case 0:
            del node[key]
        case 1:
            node.update({f"{key}x": node[key]}) if isinstance(node, dict) else node.append(node[key])
        case _:
            node[key] = chance.choice([None, True, -1, 0, 2**62, 2**64, 1.5, "", "rows", [], [1, 2], {}, {"a": 1}])
    changed = joined(outer, inner, body)
    if not seal:
        old = split(data)[1]["sha256"].encode()
        changed = changed.replace(split(changed)[1]["sha256"].encode(), old, 1)
    return changed


def outcome(content: bytes, path) -> pt.Gaussian | str:
    """What was loaded, or the name of the error; an error without a name of ours goes through."""
    path.write_bytes(content)
    try:
        return pt.load(path)
    except BadPriorFile as error:
        return type(error).__name__


def test_two_thousand_mutated_files_load_equal_or_fail_by_name(data, tmp_path):
    chance, names = random.Random(0), set()
    for _ in range(2000):
        found = outcome(mutated(data, chance), tmp_path / "mutated")
        if isinstance(found, str):
            names.add(found)
        else:
            assert same(found, PRIOR)
    assert {"DamagedFile", "NotAPrior"} <= names


def test_forged_headers_and_tensors_fail_by_name_behind_a_right_seal(data, tmp_path):
    chance = random.Random(1)
    length = int.from_bytes(data[:8], "little")
    for _ in range(500):
        if chance.random() < 0.5:
            changed = edited_json(data, chance, True)
        else:
            at = chance.randrange(8, len(data))
            flipped = data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]
            changed = sealed(flipped[8 : 8 + length], flipped[8 + length :])
        found = outcome(changed, tmp_path / "forged")
        if not isinstance(found, str):
            assert all(bool(torch.isfinite(mean).all()) for mean in found.mean.values())


def test_every_flipped_bit_of_a_factor_is_noticed(data, refused):
    outer, _, body = split(data)
    start = len(data) - len(body) + outer[f"{NUMBER['kronecker']}.left.0"]["data_offsets"][0]
    for bit in range(8):
        refused(data[:start] + bytes([data[start] ^ 1 << bit]) + data[start + 1 :], DamagedFile, "seal", "again")


@pytest.mark.parametrize("keep", [9, 100, 1000, -1])
def test_a_file_cut_short_is_damaged(data, refused, keep):
    refused(data[:keep], DamagedFile)


def test_a_longer_file_is_damaged(data, refused):
    refused(data + b"\0", DamagedFile)


# --- other files -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content", [b"", b"short", b"%PDF-1.7 and so on and on", b"\x80\x04\x95" + b"pickle" * 9, b"\0" * 99]
)
def test_other_kinds_of_files_are_no_priors(refused, content):
    refused(content, NotAPrior)


def test_a_foreign_safetensors_file_is_no_prior(refused):
    refused(safetensors.torch.save({"a": torch.ones(3)}), NotAPrior, "posterity did not write")
    refused(safetensors.torch.save({"a": torch.ones(3)}, metadata={"format": "pt"}), NotAPrior)


def test_a_file_rewritten_by_another_tool_is_told_so(data, refused):
    refused(safetensors.torch.save({"a": torch.ones(3)}, metadata={"posterity": "{}"}), DamagedFile, "seal")


def test_folders_and_pipes_are_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(NotAPrior, match="regular"):
            pt.load(path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_told_so(data, tmp_path):
    path = tmp_path / "locked"
    path.write_bytes(data)
    path.chmod(0)
    with pytest.raises(UnreadableFile, match="locked"):
        pt.load(path)


def test_a_path_that_cannot_be_one_is_told_so():
    with pytest.raises(PosterityError):
        pt.load("a\0b")


# --- sizes -----------------------------------------------------------------------------------------


def test_a_file_above_the_limit_is_not_read(data, refused):
    refused(data, OversizedFile, str(len(data)), "limit_bytes", limit_bytes=len(data) - 1)


def test_a_sparse_giant_is_refused_by_its_size(tmp_path):
    path = tmp_path / "giant"
    with open(path, "wb") as file:
        file.truncate(2**40)
    with pytest.raises(OversizedFile, match=str(2**40)):
        pt.load(path)


def test_a_giant_header_is_refused(refused):
    length = HEADER_LIMIT + 1
    refused(struct.pack("<Q", length) + b"{" + b" " * length, OversizedFile, str(length))
    refused(struct.pack("<Q", 2**63) + b"{}", NotAPrior)


@pytest.mark.parametrize(
    "shape", [[2**62, 2**62], [-1, 3], [1.0, 3], ["2", 3], [True, 3], None, [3], [2, 3, 1], [0, 0], [2**70, 1]]
)
def test_declared_shapes_are_not_believed(data, refused, shape):
    refused(with_header(data, lambda h: h["blocks"][0].update(shape=shape)), DamagedFile)
    outer, inner, body = split(data)
    refused(joined({**outer, "0.mean": {**outer["0.mean"], "shape": shape}}, inner, body), DamagedFile)


@pytest.mark.parametrize("terms", [10**18, 0, -1, 2, 4, 1.0, None, "3"])
def test_declared_numbers_of_terms_are_not_believed(data, refused, terms):
    number = NUMBER["sum of three"]
    refused(with_header(data, lambda h: h["blocks"][number].update(terms=terms)), DamagedFile)


@pytest.mark.parametrize("offsets", [[0, 2**62], [2**62, 2**63], [-8, 40], [40, 0], [8, 56], [0], None, "0"])
def test_declared_offsets_are_not_believed(data, refused, offsets):
    outer, inner, body = split(data)
    refused(joined({**outer, "0.mean": {**outer["0.mean"], "data_offsets": offsets}}, inner, body), DamagedFile)


# --- JSON ------------------------------------------------------------------------------------------


def test_a_later_format_is_told_so(data, refused):
    refused(with_header(data, lambda h: h.update(format=9)), FutureVersion, "format 9", "upgrade")
    refused(with_header(data, lambda h: (h.update(format=99), h.pop("blocks"))), FutureVersion, "format 99")


def test_a_format_of_unreleased_versions_is_told_so(data, refused):
    refused(with_header(data, lambda h: (h.update(format=6), h.pop("card"))), OldFormat, "format 6", "learn it again")


@pytest.mark.parametrize("version", [0, -1, 1.0, "1", None, True, [1], 2**70])
def test_a_format_that_is_no_number_is_damage(data, refused, version):
    refused(with_header(data, lambda h: h.update(format=version)), DamagedFile)


@pytest.mark.parametrize("depth", [200, 100_000])
def test_deep_nesting_is_refused(data, refused, depth):
    deep = "[" * depth + "]" * depth
    refused(with_text(data, '"format":8', f'"format":{deep}'), DamagedFile)
    outer, inner, body = split(data)
    header = joined(outer, inner, b"")[8:]
    refused(sealed(header[:-1] + b',"deep":' + deep.encode() + b"}", body), DamagedFile)


def test_a_header_full_of_numbers_is_refused(data, refused):
    refused(with_text(data, '"format":8', '"format":8,"more":[' + "0," * 10**6 + "0]"), DamagedFile)
    refused(with_text(data, '"format":8', '"format":' + "9" * 10_000), DamagedFile)


def test_names_that_appear_twice_are_refused(data, refused):
    refused(with_text(data, '"format":8', '"format":8,"format":8'), DamagedFile, "twice")
    refused(with_header(data, lambda h: h["blocks"][0].update(name=h["blocks"][1]["name"])), DamagedFile, "2 blocks")
    outer, inner, body = split(data)
    header = joined(outer, inner, b"")[8:]
    again = json.dumps(outer["0.mean"]).encode()
    refused(sealed(header[:-1] + b',"0.mean":' + again + b"}", body), DamagedFile, "twice")


@pytest.mark.parametrize(
    "value", ["NaN", "Infinity", "-Infinity", "1e999", "-1", "null", '"x"', "[]", "true", "9" * 400]
)
def test_a_number_of_the_card_is_a_number(data, refused, value):
    refused(with_text(data, '"compression":{"0":0.00125}', f'"compression":{{"0":{value}}}'), DamagedFile)


@pytest.mark.parametrize("field", ["text", "licence", "count", "scales", "compression", "frozen", "versions", "seed"])
@pytest.mark.parametrize("value", [[], 1.5, {"a": []}, True])
def test_a_card_of_wrong_types_is_refused(data, refused, field, value):
    refused(with_header(data, lambda h: h["card"].update({field: value})), DamagedFile, field)


@pytest.mark.parametrize("scales", [[1, 1], [1, 1, 0], [1, -1, 1], [1, 1, 1, 1], "abc", None, [1, "1", 1]])
def test_scales_are_three_and_not_negative(data, refused, scales):
    refused(with_header(data, lambda h: h["card"].update(scales={"0": scales})), DamagedFile, "scales")


def test_fields_too_many_or_too_few_are_refused(data, refused):
    for change in (
        lambda h: h.pop("blocks"),
        lambda h: h.update(more=1),
        lambda h: h["card"].pop("text"),
        lambda h: h["card"].update(code="import os"),
        lambda h: h["blocks"][0].pop("kind"),
        lambda h: h["blocks"][0].update(hook="eval"),
        lambda h: h["blocks"].pop(),
        lambda h: h["blocks"].append(1),
        lambda h: h.update(blocks={}),
        lambda h: h["blocks"][0].update(kind="os.system"),
        lambda h: h["blocks"][0]["tensors"].pop("mean"),
        lambda h: h["blocks"][0]["tensors"].update(more=["float64", "rows"]),
        lambda h: h["blocks"][0]["tensors"].update(mean=["int64", "rows"]),
        lambda h: h["blocks"][0]["tensors"].update(mean=["float64", "spiral"]),
        lambda h: h["blocks"][0]["tensors"].update(mean=["float32", "rows"]),
        lambda h: h["blocks"][0]["tensors"].update(mean=["float64", "columns"]),
    ):
        refused(with_header(data, change), DamagedFile)


def test_metadata_is_one_text(data, refused):
    outer, inner, body = split(data)
    text = joined(outer, inner, body)
    assert outer["__metadata__"].keys() == {"posterity"}
    refused(joined({**outer, "__metadata__": {"more": "x"}}, inner, body), DamagedFile, "one key")
    header = text[8 : len(text) - len(body)]
    refused(sealed(b"[" + header + b"]", body), NotAPrior)


def test_bytes_that_are_no_utf_8_are_refused(data, refused):
    outer, inner, body = split(data)
    header = joined(outer, inner, b"")[8:]
    refused(sealed(header.replace(b"Apache", b"\xff\xfe\xc0ch", 1), body), DamagedFile, "UTF-8")


# --- tensors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("role", ["mean", "left.matrix", "left.inverse", "left.logabsdet", "values"])
def test_numbers_that_are_not_finite_are_refused(data, refused, value, role):
    name = f"{NUMBER['joint eigen']}.{role}"
    refused(with_body(data, name, struct.pack("<d", value)), DamagedFile, "joint eigen")


@pytest.mark.parametrize("structure", ["kronecker", "sum of two", "dense"])
def test_an_asymmetric_factor_is_refused(data, refused, structure):
    role = "values" if structure == "dense" else "right.0"
    refused(with_body(data, f"{NUMBER[structure]}.{role}", struct.pack("<d", 9.0), 8), DamagedFile, "transpose")


@pytest.mark.parametrize(
    ("structure", "role"), [("identity", "scale"), ("diagonal", "values"), ("joint eigen", "values")]
)
@pytest.mark.parametrize("value", [0.0, -1.0])
def test_a_scale_that_is_not_positive_is_refused(data, refused, structure, role, value):
    refused(with_body(data, f"{NUMBER[structure]}.{role}", struct.pack("<d", value)), DamagedFile, "positive")


@pytest.mark.parametrize("role", ["left.matrix", "left.inverse", "left.logabsdet", "right.logabsdet"])
def test_a_basis_that_contradicts_its_inverse_or_determinant_is_refused(data, refused, role):
    refused(with_body(data, f"{NUMBER['joint eigen']}.{role}", struct.pack("<d", 3.7)), DamagedFile, "basis")


def test_a_basis_that_only_claims_to_be_orthogonal_is_refused(data, refused):
    name = f"{NUMBER['orthogonal eigen']}.left.orthogonal"
    refused(with_body(data, name, struct.pack("<d", 0.1)), DamagedFile, "basis")


@pytest.mark.parametrize(("structure", "role"), [("turned", "turned.index"), ("identity", "scale")])
def test_a_tensor_without_columns_is_not_stored_by_them(data, refused, structure, role):
    def told(header):
        header["blocks"][NUMBER[structure]]["tensors"][role][1] = "columns"

    refused(with_header(data, told), DamagedFile, structure, "column by column")


@pytest.mark.parametrize("value", [0.5, -1.0, 6.0, 1e300, float("nan"), float("inf")])
def test_directions_that_are_no_directions_are_refused(data, refused, value):
    refused(with_body(data, f"{NUMBER['turned']}.turned.index", struct.pack("<d", value)), DamagedFile, "directions")


def test_hashes_are_sorted_and_as_many_as_declared(data, refused):
    def told(**changes):
        return with_header(data, lambda h: h["provenance"].update(changes))

    refused(with_body(data, "seen", struct.pack("<q", 2**62)), DamagedFile, "order")
    refused(told(examples=4), DamagedFile, "hashes")
    refused(told(examples=2**60), DamagedFile, "hashes")
    refused(told(examples=0), DamagedFile, "does not speak of")
    refused(told(choices=[]), DamagedFile, "does not speak of")
    for choices in (
        [["a", 0, 1, False]],
        [["a", 2, 1]],
        [["a", 2, 1, 0]],
        [[1, 2, 1, True]],
        "a",
        [["a", 2, -1, True]],
    ):
        refused(told(choices=choices), DamagedFile)
    refused(told(gaps="x"), DamagedFile, "list")
    outer, inner, body = split(data)
    refused(joined({**outer, "seen": {**outer["seen"], "dtype": "F64"}}, inner, body), DamagedFile, "hashes")


def test_tensors_of_types_that_torch_does_not_have_are_refused(data, refused):
    outer, inner, body = split(data)
    for dtype in ("F4", "Q8", "F64 ", None, 3):
        refused(joined({**outer, "0.mean": {**outer["0.mean"], "dtype": dtype}}, inner, body), DamagedFile)


def test_a_tensor_too_many_or_too_few_is_refused(data, refused):
    outer, inner, body = split(data)
    end = len(body)
    extra = {**outer, "extra": {"dtype": "F64", "shape": [1], "data_offsets": [end, end + 8]}}
    refused(joined(extra, inner, body + b"\0" * 8), DamagedFile, "extra")
    renamed = {("0.other" if name == "0.mean" else name): spec for name, spec in outer.items()}
    refused(joined(renamed, inner, body), DamagedFile, '"0.mean" is missing')


@pytest.mark.parametrize(
    "entry", [["x", "float32", [2], None], ["x", "complex64", [1], "00"], ["x", "float32", [-1], "00"], ["x"], 3]
)
def test_what_a_header_says_of_tensors_beside_the_blocks_is_checked(data, refused, entry):
    refused(with_header(data, lambda h: h.update(frozen=[entry])), DamagedFile)


def test_two_tensors_beside_the_blocks_have_two_names(data, refused):
    entry = ["x", "float32", [], "00"]
    refused(with_header(data, lambda h: h.update(frozen=[entry, entry])), DamagedFile, "one name")
