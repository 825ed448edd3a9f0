"""`posterity certify` and `posterity audit`: a bound that holds, and a look at someone else's."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Annotated, Literal

import torch
import typer
from rich import box
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from posterity import pacbayes
from posterity.arrays import read_pairs
from posterity.errors import BadAudit, NoDataSet, UnknownNetwork
from posterity.gaussian import load
from posterity.idx import IDX, images
from posterity.lenet import lenet5
from posterity.pacbayes import Certificate

NETWORKS = {"lenet5": lenet5}
"""Networks known by name; any other is named module:function."""


def certify(
    network: Annotated[
        str, typer.Argument(help='"lenet5", or module:function that builds the network: its code is run.')
    ],
    prior: Annotated[Path, typer.Argument(help="The prior's file, as .save(path) wrote it.")],
    data: Annotated[str, typer.Argument(help=f"{', '.join(IDX)}, or an .npz file with arrays x and y.")],
    posterior: Annotated[Path | None, typer.Option(help="The posterior's file; without it, the prior itself.")] = None,
    part: Annotated[Literal["train", "test"], typer.Option(help="Which part of a named data set.")] = "train",
    confidence: Annotated[float, typer.Option(min=0.5, max=0.9999)] = 0.95,
    passes: Annotated[
        int | None, typer.Option(min=1, help="Independent draws of the weights for every example; 10, or 100 for few.")
    ] = None,
    grid: Annotated[int, typer.Option(min=1, help="How many priors were declared before the data was seen.")] = 1,
    vouched: Annotated[
        str | None, typer.Option(help="Vouch for a prior of unknown past: the text stands in the certificate.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the draws: new for every certificate that is reported.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Where to write the audit record (JSON).", dir_okay=False)] = None,
) -> None:
    """Certify the risk of networks drawn from a posterior, by data that its prior has not seen."""
    model = _network(network)
    before = load(prior)
    after = before if posterior is None else load(posterior)
    certificate = pacbayes.certify(
        model,
        after,
        before,
        _data(data, part),
        confidence,
        passes=passes,
        grid=grid,
        vouched=vouched,
        generator=torch.Generator().manual_seed(seed),
    )
    _show(certificate)
    if out is not None:
        certificate.save(out)
        Console().print(f"Record: {out} (`posterity audit {out}` checks it)", highlight=False, soft_wrap=True)


def audit(file: Annotated[Path, typer.Argument(help="A certificate's record.")]) -> None:
    """Check a certificate's record: do its numbers follow from each other? Prints it if they do."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadAudit(f"{file} cannot be read: {error}.") from None
    _show(Certificate.from_json(text))


def _show(certificate: Certificate) -> None:
    table = Table(box=box.SIMPLE_HEAD, show_header=False, title="Certificate", title_justify="left")
    table.add_column(style="dim")
    table.add_column()
    for name, value in certificate.rows():
        table.add_row(name, value)
    Console().print(table)


def _network(name: str) -> nn.Module:
    module, _, function = name.partition(":")
    if function:
        Console(stderr=True).print(
            f"Running {function}() of the module {module}: code of yours, with all that you may do.",
            highlight=False,
            markup=False,
        )
        # As `python -m` does: modules of the folder one stands in are found.
        sys.path.insert(0, os.getcwd())
    try:
        build = getattr(importlib.import_module(module), function) if function else NETWORKS[name]
        model = build()
    except Exception as error:  # whatever someone's own module raises
        raise UnknownNetwork(f"{name!r} cannot be built: {type(error).__name__}: {error}.") from error
    if not isinstance(model, nn.Module):
        raise UnknownNetwork(
            f"{name!r} gives a {type(model).__name__}: a function that returns an nn.Module is needed."
        )
    return model


def _data(name: str, part: Literal["train", "test"]) -> tuple[Tensor, Tensor]:
    if not name.endswith(".npz"):
        if name not in IDX:
            raise NoDataSet(f"{name!r} is none of {', '.join(IDX)} and no .npz file.")
        found = images(name)
        return found.train if part == "train" else found.test
    return read_pairs(name)
