"""Changed files for a reader, with 4 GB of address space: each must load, or fail with an error of ours.

python tests/reliability/mutate.py prior 10000
"""

from __future__ import annotations

import random
import resource
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from pathlib import Path

LIMIT = 4 << 30


def mutate(name: str, count: int, seed: int = 0) -> tuple[Counter[str], list[str]]:
    """How often each thing happened, and the first few that must not."""
    from readers import READERS, again

    from posterity.errors import PosterityError

    reader, outcomes, bad = READERS[name], Counter[str](), []
    with tempfile.TemporaryDirectory() as place:
        good, folder = Path(place) / "good", Path(place) / "changed"
        good.mkdir()
        reader.make(good)
        reader.read(good) if name != "checkpoint" else None
        for k in range(count):
            chance = random.Random(f"{name} {seed} {k}")
            again(good, folder)
            reader.change(folder, chance)
            try:
                reader.read(folder)
                outcomes["loaded"] += 1
            except PosterityError as error:
                outcomes[type(error).__name__] += 1
            except Exception as error:
                outcomes[f"RAW {type(error).__name__}"] += 1
                if len(bad) < 5:
                    bad.append(f"{name} {seed} {k}: {''.join(traceback.format_exception(error)[-4:])}")
    return outcomes, bad


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT, LIMIT))
    found, wrong = mutate(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 0)
    print(f"{sys.argv[1]}: {dict(found.most_common())}")
    for text in wrong:
        print(text)
    sys.exit(bool(wrong))
