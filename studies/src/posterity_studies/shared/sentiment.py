"""Sentences that people rated, from four sources: film reviews, product reviews, tweets, editorials.

The ratings are those of Hutto and Gilbert, "VADER: a parsimonious rule-based model for sentiment analysis of social media text"
(ICWSM 2014). The source distribution of the package vaderSentiment (MIT) carries them; it is read without running any of it.
"""

from __future__ import annotations

import hashlib
import io
import tarfile
from functools import cache

import torch

from posterity.errors import NoDataSet
from posterity.idx import data_root

ARCHIVE = "vaderSentiment-3.3.2.tar.gz"
SHA256 = "5d7c06e027fc8b99238edb0d53d970cf97066ef97654009890b83703849632f9"
INNER = "vaderSentiment-3.3.2/additional_resources/hutto_ICWSM_2014.tar.gz"
SOURCES = {
    "film reviews": "movieReviewSnippets",
    "product reviews": "amazonReviewSnippets",
    "tweets": "tweets",
    "editorials": "nytEditorialSnippets",
}
CLASSES = ("negative", "positive")
CLEAR = 1.0
"""Mean ratings, from −4 to 4, nearer to zero than this are left out."""

Sentences = tuple[tuple[str, ...], tuple[int, ...]]


@cache
def sentences(source: str) -> Sentences:
    """All sentences of a source that were clearly rated, and whether that was positive."""
    root = data_root()
    if root is None:
        raise NoDataSet(
            "rated sentences are read from the data root: set POSTERITY_DATA to a folder that holds sentiment/."
        )
    path = root / "sentiment" / ARCHIVE
    fetch = f"pip download --no-deps --no-binary :all: vaderSentiment==3.3.2 -d {path.parent}"
    if not path.is_file():
        raise NoDataSet(f"{path} is not there: {fetch}")
    data = path.read_bytes()
    if hashlib.sha256(data).hexdigest() != SHA256:
        raise NoDataSet(f"{path} is not the file that is pinned here (sha256): {fetch}")
    with tarfile.open(fileobj=io.BytesIO(data)) as outer:
        inner = outer.extractfile(INNER)
        assert inner is not None
        with tarfile.open(fileobj=io.BytesIO(inner.read())) as archive:
            file = archive.extractfile(f"hutto_ICWSM_2014/{SOURCES[source]}_GroundTruth.txt")
            assert file is not None
            lines = file.read().decode("utf-8", "replace").splitlines()
    rated = [line.split("\t") for line in lines]
    kept = [(row[2], float(row[1])) for row in rated if len(row) == 3 and abs(float(row[1])) >= CLEAR]
    return tuple(text for text, _ in kept), tuple(int(rating > 0) for _, rating in kept)


def drawn(source: str, each: int, generator: torch.Generator, without: frozenset[int] = frozenset()) -> list[int]:
    """Numbers of `each` sentences of both classes, in a random order, none of those in `without`."""
    _, labels = sentences(source)
    order = [i for i in torch.randperm(len(labels), generator=generator).tolist() if i not in without]
    return [i for c in range(2) for i in [j for j in order if labels[j] == c][:each]]
