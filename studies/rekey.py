"""Give every result the key that names the recipe of its learned prior. Run once; no number changes.

python studies/rekey.py            # rewrites the results
python studies/rekey.py HEAD       # compares them with those of a commit, number by number
"""

from __future__ import annotations

import json
import subprocess
import sys

from posterity_studies import STUDIES, Cell
from posterity_studies.folders import SHIPPED


def rekeyed(line: dict) -> dict:
    study = STUDIES[line["study"]]
    if Cell(study.id, study.version, line["arguments"]).key != line["key"]:
        return line  # of an older version of the study: nobody asks for it
    recipe = study.source(line["arguments"]) if study.source else None
    source = recipe.name if recipe else ""
    return line | {"key": Cell(study.id, study.version, line["arguments"], source).key, "source": source}


def main() -> None:
    for path in sorted(SHIPPED.glob("*.jsonl")):
        if path.stem not in STUDIES:
            continue
        if len(sys.argv) > 1:
            before = subprocess.run(
                ["git", "show", f"{sys.argv[1]}:./{path.name}"], cwd=path.parent, capture_output=True, check=True
            ).stdout.splitlines()
            after = path.read_bytes().splitlines()
            assert len(before) == len(after), path
            new = 0
            for old_line, line in zip(before, after, strict=True):
                old, now = json.loads(old_line), json.loads(line)
                new += old.pop("key") != now.pop("key")
                now.pop("source")
                # As text, so that not even the last digit of a number may differ.
                assert json.dumps(old) == json.dumps(now), path
            print(
                f"{path.name}: {len(after)} records, {new} keys new, every argument, value, time and version as before"
            )
        else:
            lines = [rekeyed(json.loads(line)) for line in path.read_text().splitlines()]
            path.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))


if __name__ == "__main__":
    main()
