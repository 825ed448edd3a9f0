"""The demo's page in a real browser: it fits a phone and a desk, in light and dark, and no script of it is needed."""

import re
import shutil
import subprocess

import pytest
from test_demo import ran  # noqa: F401 (a fixture)

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium here to look at the page with")

# Windows of a headless Chromium are never narrower than 500 pixels: a frame is.
FRAME = """<!doctype html><body style="margin:0"><iframe src="{page}" style="border:0;width:{width}px;height:900px"></iframe>
<script>addEventListener("message", event => document.title = event.data)</script></body>"""
REPORT = """<script>addEventListener("load", () => parent.postMessage([
  innerWidth,
  document.documentElement.scrollWidth,
  getComputedStyle(document.body).backgroundColor,
  [...document.querySelectorAll("svg")].filter(s => s.getBoundingClientRect().height < 4).length,
  Math.min(...[...document.querySelectorAll("p,td,li,h2")].map(e => parseFloat(getComputedStyle(e).fontSize))),
].join("|"), "*"))</script></body>"""


def look(page, folder, width, *flags):
    """What a browser makes of the page: (width, needed width, background, flat drawings, smallest letters)."""
    probed = folder / "probed.html"
    probed.write_text(page.read_text().replace("</body>", REPORT))
    framed = folder / "framed.html"
    framed.write_text(FRAME.format(page=probed.as_uri(), width=width))
    command = [
        BROWSER,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--window-size=1400,1000",
        "--virtual-time-budget=4000",
    ]
    done = subprocess.run(
        [*command, *flags, "--dump-dom", framed.as_uri()], capture_output=True, text=True, timeout=120, check=True
    )
    title = re.search("<title>(.*?)</title>", done.stdout)
    assert title, done.stderr
    width, needed, background, flat, letters = title.group(1).split("|")
    return int(width), int(needed), background, int(flat), float(letters)


@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_scrolls_sideways_and_every_drawing_is_seen(ran, tmp_path, width):  # noqa: F811
    shown, needed, _, flat, letters = look(ran[0] / "index.html", tmp_path, width)
    assert shown == width
    assert needed <= width
    assert flat == 0
    assert letters >= 13


def test_light_is_light_and_dark_is_dark(ran, tmp_path):  # noqa: F811
    light = look(ran[0] / "index.html", tmp_path, 390)[2]
    dark = look(ran[0] / "index.html", tmp_path, 390, "--force-dark-mode")[2]
    brightness = [sum(map(int, re.findall(r"\d+", colour)[:3])) for colour in (light, dark)]
    assert brightness[0] > 700
    assert brightness[1] < 100
