"""`posterity prior zoo`: the priors that others can begin with."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from posterity import zoo


def listed() -> None:
    """List the priors of the zoo: what they have seen, how large they are, and how to get them."""
    table = Table("prior", "for", "has seen", "size", "licence", "here", box=None, padding=(0, 2, 0, 0))
    for entry in zoo.entries():
        here = "yes" if entry.path.is_file() else entry.make
        table.add_row(entry.name, entry.network, entry.seen, f"{entry.size / 2**20:.1f} MB", entry.licence, here)
    Console(highlight=False).print(table)
