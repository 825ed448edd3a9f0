"""The report renders from results alone, needs nothing from elsewhere, and says what became of each claim."""

import contextlib
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest
from toy import run_toy, toy

from posterity_studies import STUDIES, Outcome, Verdict, latest, markdown, report
from posterity_studies.engine.report.markdown import is_generated
from posterity_studies.errors import NoResults
from posterity_studies.folders import SHIPPED

PAGES = Path(__file__).parents[2] / "docs" / "studies"
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium here: Debian's package chromium has one")


def computed():
    """Studies with results of the cells that they declare now: one that was declared again has none for a while."""
    found = []
    for study in STUDIES.values():
        with contextlib.suppress(NoResults):
            latest(study, SHIPPED)
            found.append(study)
    return found


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(report(STUDIES, SHIPPED), encoding="utf-8")
    return path


class _Names(HTMLParser):
    def __init__(self):
        super().__init__()
        self.names, self.links = [], []

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.names += [found["id"]] if "id" in found else []
        self.links += [found["href"][1:]] if found.get("href", "").startswith("#") else []


def test_page_renders_without_any_data_set(page, monkeypatch):
    monkeypatch.delenv("POSTERITY_DATA", raising=False)
    monkeypatch.chdir(page.parent)
    assert "<figure" in report({"kronecker": STUDIES["kronecker"]}, SHIPPED)


def test_page_tells_every_study_its_claim_and_command(page):
    text = page.read_text(encoding="utf-8")
    for study in STUDIES.values():
        assert f"<section id='{study.id}'>" in text
        assert f"posterity study run {study.id}" in text


def test_page_fetches_nothing(page):
    text = page.read_text(encoding="utf-8")
    assert "<script" not in text
    assert not re.search(r"(src|href)=['\"]?https?:", text)
    assert not re.search(r"@import|url\(https?:", text)


def test_names_inside_the_page_are_its_own_and_links_lead_somewhere(page):
    found = _Names()
    found.feed(page.read_text(encoding="utf-8"))
    assert len(found.names) == len(set(found.names))
    assert set(found.links) <= set(found.names)


def test_study_without_results_says_how_to_get_them(tmp_path):
    text = report({"toy": toy()}, tmp_path)
    assert "No results yet: <code>posterity study run toy</code>" in text
    assert "no verdict yet" in text


def test_every_verdict_is_an_outcome_with_figures():
    for study in computed():
        verdict = study.verdict(latest(study, SHIPPED)[1])
        assert isinstance(verdict, Verdict)
        assert verdict.outcome in Outcome
        assert re.search(r"\d", verdict.why)


def test_markdown_page_has_a_row_for_every_row_of_the_tables(tmp_path):
    records = run_toy(tmp_path, 1)
    text = markdown(toy(), *latest(toy(), tmp_path))
    assert "Draws are draws." in text.splitlines()[0]
    assert all(f"| {record.key} |" in text for record in records)


@pytest.mark.parametrize("path", sorted(PAGES.glob("*.md")), ids=lambda path: path.stem)
def test_generated_pages_say_what_the_results_say(path):
    text = path.read_text(encoding="utf-8")
    if path.stem not in STUDIES or not is_generated(text, STUDIES[path.stem]):
        pytest.skip("written by hand")
    if STUDIES[path.stem] not in computed():
        pytest.skip("declared again, and not computed yet")
    assert text == markdown(STUDIES[path.stem], *latest(STUDIES[path.stem], SHIPPED))


def _in_browser(page, width, *options):
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--window-size={width},1000", *options]
    return subprocess.run([*command, page.as_uri()], capture_output=True, text=True, timeout=60, check=True).stdout


@browser
def test_browser_lays_out_every_section_and_figure(page):
    seen = _in_browser(page, 1400, "--dump-dom")
    assert seen.count("<section") == len(STUDIES)
    assert seen.count("<svg") == len(computed())


@browser
@pytest.mark.parametrize("width", [390, 1400])
def test_page_is_no_wider_than_the_screen(page, tmp_path, width):
    """A frame of the phone's width asks the page in it how wide it became."""
    frame = tmp_path / "frame.html"
    inside = page.read_text(encoding="utf-8").replace("&", "&amp;").replace('"', "&quot;")
    frame.write_text(
        f'<iframe id=f style="width:{width}px;height:900px;border:0" srcdoc="{inside}"></iframe><output id=o></output>'
        "<script>f.onload=()=>{o.textContent='wide '+f.contentDocument.documentElement.scrollWidth}</script>",
        encoding="utf-8",
    )
    seen = _in_browser(frame, 1600, "--dump-dom", "--virtual-time-budget=5000")
    assert int(re.search(r"wide (\d+)", seen)[1]) <= width
