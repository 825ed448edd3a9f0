"""How pages look: light and dark, on a phone and on a desk, with no font or script from elsewhere."""

from __future__ import annotations

STYLE = """
:root{color-scheme:light dark;--ink:#222223;--dim:#5a5a5f;--grid:#dededf;--paper:#fbfbf9;--card:#fff;--link:#005f9e;
--glow:#e4572e;--pale:#d9d9da;--blue:#0072b2;--orange:#d55e00;--green:#009e73;--purple:#8f5bb0;--ochre:#b08900;--grey:#77777a}
@media (prefers-color-scheme:dark){:root{--ink:#e8e8e5;--dim:#a6a6ab;--grid:#3a3a3f;--paper:#151517;--card:#1e1e21;--link:#7cc4f5;
--glow:#ff8a5c;--pale:#48484d;--blue:#56b4e9;--orange:#ff8f40;--green:#2fd3a4;--purple:#c79be0;--ochre:#e3bd3c;--grey:#a0a0a4}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:17px/1.55 system-ui,-apple-system,"Segoe UI",sans-serif}
main{max-width:1080px;margin:0 auto;padding:2.2rem 1rem 4rem}
h1{font-size:clamp(1.8rem,6vw,2.9rem);line-height:1.1;margin:0 0 .7rem;letter-spacing:-.02em;overflow-wrap:anywhere}
h2{font-size:1.35rem;line-height:1.25;margin:3.2rem 0 .5rem}
p,ul,ol{max-width:70ch}.lead{font-size:1.15rem;line-height:1.5}.dim{color:var(--dim)}.small{font-size:.9rem}
a{color:var(--link)}
.numbers{display:grid;gap:.8rem;grid-template-columns:repeat(auto-fit,minmax(min(100%,220px),1fr));margin:1.4rem 0;padding:0}
.numbers div{background:var(--card);border:1px solid var(--grid);border-radius:14px;padding:.8rem 1rem}
.numbers b{display:block;font-size:1.9rem;line-height:1.15;color:var(--blue);font-variant-numeric:tabular-nums}
.panels{display:grid;gap:1rem;grid-template-columns:repeat(auto-fit,minmax(min(100%,420px),1fr))}
.panels.three{grid-template-columns:repeat(auto-fit,minmax(min(100%,290px),1fr))}
figure{margin:0;background:var(--card);border:1px solid var(--grid);border-radius:12px;padding:.6rem}
figure.one{max-width:620px}
svg{display:block;width:100%;height:auto}
.rows{width:100%;border-collapse:collapse;font-size:.92rem;font-variant-numeric:tabular-nums;margin:.4rem 0 1rem}
.rows caption{text-align:left;font-weight:600;padding:.9rem 0 .2rem}
.rows th,.rows td{padding:.3rem .5rem .3rem 0;text-align:right;border-bottom:1px solid var(--grid);vertical-align:top;
overflow-wrap:anywhere}
.rows th:first-child,.rows td:first-child{text-align:left}.rows th{font-weight:500;color:var(--dim)}
dl{display:grid;grid-template-columns:fit-content(55%) minmax(4.5rem,1fr);gap:.15rem 1rem;font-size:.92rem;margin:1rem 0 0}
dt{color:var(--dim)}dd{margin:0;overflow-wrap:anywhere}
pre{background:var(--card);border:1px solid var(--grid);border-radius:12px;padding:.9rem 1rem;font-size:.86rem;line-height:1.5;
white-space:pre-wrap;overflow-wrap:anywhere;max-width:100%}
code{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
p code,li code,dd code{background:var(--card);border:1px solid var(--grid);border-radius:5px;padding:.05em .3em;font-size:.88em;
overflow-wrap:anywhere}
@media (max-width:480px){body{font-size:16px}.rows{font-size:.84rem}}
"""
"""The part that all pages share; `document` takes what a page adds to it."""
