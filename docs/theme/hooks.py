"""What the site needs beyond Markdown: result files of the studies, and pictures drawn from them.

Pages link to results where they lie in the repository, so that links work there too. On the site they are copied.
A comment `<!-- picture: name -->` becomes a drawing of `pictures.py`.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "studies" / "src" / "posterity_studies" / "results"
LINK = re.compile(r"\((?:\.\./)+studies/src/posterity_studies/results/([\w.-]+)\)")
PICTURE = re.compile(r"<!-- picture: ([\w-]+) -->")


def on_files(files: Any, config: Any) -> Any:
    """Add every result file that a page links to."""
    pages = (Path(config["docs_dir"]) / f.src_uri for f in files.documentation_pages())
    linked = {name for page in pages for name in LINK.findall(page.read_text(encoding="utf-8"))}
    for name in sorted(linked):
        if not (RESULTS / name).exists():
            raise PluginError(f"a page links to the results file {name}, which does not exist")
        files.append(File.generated(config, f"results/{name}", abs_src_path=str(RESULTS / name)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Links to results lead to the copies."""
    up = "../" * page.file.src_uri.count("/")
    return LINK.sub(rf"({up}results/\1)", markdown)


def on_page_content(html: str, page: Any, config: Any, files: Any) -> str:
    """Draw the pictures."""
    if not PICTURE.search(html):
        return html
    drawn = _pictures()
    return PICTURE.sub(lambda found: f'<figure class="picture">{drawn.draw(found[1])}</figure>', html)


def _pictures() -> ModuleType:
    # Loaded when needed: pages without pictures build without matplotlib.
    spec = importlib.util.spec_from_file_location("pictures", Path(__file__).with_name("pictures.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
