"""What the site needs beyond Markdown: result files of the studies, pictures drawn from them, and notebooks as pages.

Pages link to results where they lie in the repository, so that links work there too. On the site they are copied.
A comment `<!-- picture: name -->` becomes a drawing of `pictures.py`. `notebooks/NAME.ipynb` becomes the page
`notebooks/NAME.md`, with the pictures of the run that is committed.
"""

from __future__ import annotations

import base64
import importlib.util
import json
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
    """Add every result file that a page links to, and a page for every notebook."""
    pages = (Path(config["docs_dir"]) / f.src_uri for f in files.documentation_pages())
    linked = {name for page in pages for name in LINK.findall(page.read_text(encoding="utf-8"))}
    for name in sorted(linked):
        if not (RESULTS / name).exists():
            raise PluginError(f"a page links to the results file {name}, which does not exist")
        files.append(File.generated(config, f"results/{name}", abs_src_path=str(RESULTS / name)))
    for path in sorted((Path(config["docs_dir"]) / "notebooks").glob("*.ipynb")):
        text, pictures = _as_page(path)
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=text))
        for name, picture in pictures.items():
            files.append(File.generated(config, f"notebooks/{name}", content=picture))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Links to results lead to the copies. Search lists studies, which hold every word, after pages that explain it."""
    if page.file.src_uri.startswith(("studies/", "paper.", "benchmarks.")):
        page.meta["search"] = {"boost": 0.3}
    up = "../" * page.file.src_uri.count("/")
    return LINK.sub(rf"({up}results/\1)", markdown)


def on_page_content(html: str, page: Any, config: Any, files: Any) -> str:
    """Draw the pictures."""
    if not PICTURE.search(html):
        return html
    drawn = _pictures()
    return PICTURE.sub(lambda found: f'<figure class="picture">{drawn.draw(found[1])}</figure>', html)


def _as_page(path: Path) -> tuple[str, dict[str, bytes]]:
    """A notebook as Markdown, and the pictures that its last run drew."""
    parts: list[str] = []
    pictures: dict[str, bytes] = {}
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            if len(parts) == 1:
                parts.append(f"[The notebook]({path.name}){{download}}, to run it yourself.")
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            data = output.get("data", {})
            text = "".join(output.get("text", data.get("text/plain", "")))
            if "image/png" in data:
                name = f"{path.stem}-{len(pictures) + 1}.png"
                pictures[name] = base64.b64decode("".join(data["image/png"]))
                parts.append(f"![What the code above draws]({name})")
            elif text.strip():
                parts.append(f"```text\n{text.rstrip()}\n```")
    return "\n\n".join(parts) + "\n", pictures


def _pictures() -> ModuleType:
    # Loaded when needed: pages without pictures build without matplotlib.
    spec = importlib.util.spec_from_file_location("pictures", Path(__file__).with_name("pictures.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
