"""Where a learned prior helps: small target sets, every prior's strength tuned on the same validation data.

The paper compares sampled predictives at one γ and one τ (its Fig. 2b, `protocol: paper` here). The fair protocol gives each
prior the same number of strengths to try, chosen by validation NLL, and looks at MAP, sampled and linearised predictives.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from posterity_studies.declaration import Arguments, Preset, Record, Study, Table, Values
from posterity_studies.transfer import all_data, fair, published
from posterity_studies.transfer.plot import draw
from posterity_studies.transfer.verdict import verdict

PROTOCOLS = {"fair": fair, "paper": published, "all data": all_data}


def cell(arguments: Arguments, generator: torch.Generator) -> Values:
    return PROTOCOLS[arguments["protocol"]].cell(arguments, generator)


def tables(records: Sequence[Record]) -> list[Table]:
    """Protocol by protocol."""
    return [table for protocol in PROTOCOLS.values() for table in protocol.tables(records)]


PAIRS = [("digits", "mnist"), ("mnist", "notmnist"), ("notmnist", "mnist"), ("mnist", "fashion_mnist")]

TRANSFER = Study(
    id="transfer",
    claim="A learned prior makes better use of few images than isotropic priors of tuned strength.",
    grid={
        Preset.smoke: [*fair.cells(PAIRS[:1], [5], 1, 2000, 5), *published.cells([10], 1, 2000)],
        Preset.cpu: [
            *fair.cells(PAIRS[:3], [2, 10], 5, 10000, 1),
            *published.cells([10], 5, 60000),
            *all_data.cells(5),
        ],
        Preset.paper: [
            *published.cells([1, 2, 5, 10, 20, 50, 100, 200, 500, 1000], 5, 60000),
            *fair.cells(PAIRS, [1, 2, 5, 10, 20, 50, 100, 200, 500], 10, 60000, 1),
            *all_data.cells(5),
        ],
    },
    cell=cell,
    tables=tables,
    draw=draw,
    verdict=verdict,
    data="digits, MNIST, NotMNIST; LeNet-5; 300 images to tune on, 1,000 to test on",
    notes=(
        "Each prior may try six strengths, chosen by the NLL on the same 300 validation images; temperatures of the "
        f"predictives are chosen likewise from {fair.TEMPERATURES}. {all_data.TESTED:,} test images, five seeds, "
        "differences paired by seed.",
        "The prior is learned on 10,000 images of the source (1,200 digits) for the fair protocol and on 60,000 for the "
        "paper's.",
        "To MNIST, from scikit-learn's digits and from NotMNIST's letters, the learned prior gives a MAP network of "
        "clearly lower NLL than an isotropic one around the same mean. From MNIST to NotMNIST it does not at two images "
        "per class, and costs accuracy at both: what was learned about digits holds the network back on letters.",
        "After so few images the posteriors are wide, and the learned one, weak where the source had nothing to say, "
        "wider: its sampled and linearised predictives are often worse than its MAP network, whatever the temperature "
        "among the four.",
    ),
)
