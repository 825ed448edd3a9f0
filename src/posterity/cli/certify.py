"""`posterity certify` and `posterity audit`: a bound that holds, and a look at someone else's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import Tensor, nn

import posterity as pt
from posterity.cli import options as opt
from posterity.cli.networks import build
from posterity.cli.output import command_line, note, report, write_page
from posterity.cli.reading import ReadOptions, look, read
from posterity.cli.saved import SavedFile, check_new_rows, open_saved
from posterity.errors import BadAudit, BadData
from posterity.pages import certificate_page

EMPTY = 0.9
"""A bound above this is said to be empty."""


def certify(
    fit: Annotated[
        Path,
        typer.Argument(
            help="A file of `posterity learn` or `adapt`; or of a prior, with --network where it names none.",
            show_default=False,
        ),
    ],
    data: Annotated[
        str | None,
        typer.Argument(
            help="Examples that the prior has not seen; by default those that the fit learned from.", show_default=False
        ),
    ] = None,
    network: opt.Network = None,
    posterior: Annotated[
        Path | None, typer.Option(help="With a prior's file: the posterior's. By default the prior itself.")
    ] = None,
    target: opt.Target = None,
    encoder: opt.Encoder = None,
    groups: opt.Groups = None,
    missing: opt.Missing = None,
    part: opt.Part = "train",
    confidence: Annotated[float, typer.Option(min=0.5, max=0.9999)] = 0.95,
    passes: Annotated[
        int | None, typer.Option(min=1, help="Independent draws of the weights for every example; 10, or 100 for few.")
    ] = None,
    grid: Annotated[int, typer.Option(min=1, help="How many priors were declared before the data was seen.")] = 1,
    folds: Annotated[
        int | None,
        typer.Option(
            min=2, help="Learn so many times, each time without a part that measures the error; for a new last layer."
        ),
    ] = None,
    vouched: Annotated[
        str | None, typer.Option(help="Vouch for a prior of unknown past: the text stands in the certificate.")
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(help="Of the draws. By default it follows from prior, posterior and examples: none is chosen."),
    ] = None,
    out: Annotated[Path | None, opt.out_file("Where to write the audit record (JSON).")] = None,
    page: opt.Page = None,
    as_json: opt.Json = False,
    quiet: opt.Quiet = False,
) -> None:
    """Certify the risk of networks drawn from a posterior, by examples that its prior has not seen."""
    generator = None if seed is None else torch.Generator().manual_seed(seed)
    shared: dict[str, Any] = {
        "passes": passes,
        "grid": grid,
        "vouched": vouched,
        "generator": generator,
        "progress": not quiet,
    }
    opened = open_saved(fit)
    options = opt.reading(target, missing=missing, part=part, groups=groups, encoder=encoder, quiet=quiet)
    if isinstance(opened.content, pt.Gaussian):
        model, pair, shared["groups"] = _by_hand(opened, network, data, options)
        after = opened.content if posterior is None else pt.load(posterior)
        certificate = pt.certify(model, after, opened.content, pair, confidence, **shared)
    else:
        m = opened.said
        if not m.classes:
            raise BadData("certificates are on the error of classifiers, and this fit is a regression.")
        pair, shared["groups"] = _examples(opened, data, options)
        note(f"certifying by {len(pair[0]):,} examples", quiet)
        if folds is None:
            certificate = opened.fit(network).certify(pair, confidence, **shared)
        elif opened.given is None:
            raise BadData(
                f"{fit} was learned without a prior, and --folds certifies what a prior and a few examples give."
            )
        else:
            # The same verb again, several times, each time without a part of the examples.
            del shared["passes"]
            model = opened.network(network)
            certificate = pt.certify_folds(
                model,
                opened.given,
                pair,
                confidence,
                folds=folds,
                learner=m.verb,
                classes=m.classes,
                head=m.head,
                **shared,
            ).certificate
    lines = []
    if out is not None:
        certificate.save(out)
        lines = [f"Record: {out} (`posterity audit {out}` checks it)"]
    if certificate.bound > EMPTY:
        lines.append(
            "This promises next to nothing. After `adapt` with a new last layer, --folds 3 says more. With labelled examples "
            "that nothing was learned from, `posterity evaluate FIT EXAMPLES` bounds the error of the averaged predictions."
        )
    report(json.loads(certificate.to_json()), as_json, "Certificate", certificate.rows(), lines)
    write_page(page, lambda: certificate_page("Certificate", certificate, command_line()))


def audit(
    file: Annotated[Path, typer.Argument(help="A certificate's record.", show_default=False)],
    page: opt.Page = None,
    as_json: opt.Json = False,
) -> None:
    """Check a certificate's record: do its numbers follow from each other? Prints it if they do."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadAudit(f"{file} cannot be read: {error}.") from None
    certificate = pt.Certificate.from_json(text)
    report(json.loads(certificate.to_json()), as_json, "Certificate", certificate.rows())
    write_page(page, lambda: certificate_page("Certificate", certificate, command_line()))


Pair = tuple[Tensor, Tensor]


def _examples(opened: SavedFile, data: str | None, options: ReadOptions) -> tuple[Pair, Tensor | None]:
    """Those that are named, or those that a fit learned from, where it keeps them; and their groups."""
    if data is not None:
        examples = read(data, options, opened.said.recipe, opened.said.classes)
        check_new_rows(opened.given, examples)
        return examples.pair, examples.groups
    together = opened.said.recipe.groups
    if together is not None:
        raise BadData(
            f'{opened.path} was learned by groups ("{together}") and keeps its examples without them: name the data that is to '
            "certify, so that groups are counted."
        )
    found = opened.examples()
    if found is None:
        raise BadData(
            f"{opened.path} keeps no examples (it learned from {opened.count:,}): name the data that is to certify."
        )
    return (found.whole.positional[0], found.whole.targets), None


def _by_hand(
    opened: SavedFile, network: str | None, data: str | None, options: ReadOptions
) -> tuple[nn.Module, Pair, Tensor | None]:
    """The network, the examples and their groups for a prior's file, which may say how data is read for it."""
    name, m = opened.name(network), opened.manifest
    if data is None:
        raise BadData("a prior's file keeps no examples: name the data that is to certify.")
    recipe = None if m is None else m.recipe
    examples = read(data, options, recipe, opened.handed_down.card.classes if m is not None else ())
    check_new_rows(opened.handed_down, examples)
    outputs = max(examples.outputs, 10 if look(data, options, recipe).classes is None and name == "lenet5" else 0)
    return build(name, tuple(examples.x.shape[1:]), outputs), examples.pair, examples.groups
