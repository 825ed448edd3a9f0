"""How the page looks: light and dark, on a phone and on a desk, with no font or script from elsewhere."""

STYLE = """
:root{color-scheme:light dark;--ink:#222223;--dim:#5a5a5f;--grid:#dededf;--paper:#fbfbf9;--card:#fff;
--glow:#e4572e;--pale:#d9d9da;--learned:#0072b2;--isotropic:#d55e00;--ensemble:#8f5bb0;--tuned:#009e73;--none:#77777a;--scratch:#b08900;
--e0:#4477aa;--e1:#66ccee;--e2:#228833;--e3:#ccbb44;--e4:#ee6677;--e5:#aa3377;--e6:#bbbbbb}
@media (prefers-color-scheme:dark){:root{--ink:#e8e8e5;--dim:#a6a6ab;--grid:#3a3a3f;--paper:#151517;--card:#1e1e21;
--glow:#ff8a5c;--pale:#48484d;--learned:#56b4e9;--isotropic:#ff8f40;--ensemble:#c79be0;--tuned:#2fd3a4;--none:#a0a0a4;--scratch:#e3bd3c;
--e0:#77aadd;--e1:#99ddff;--e2:#44bb99;--e3:#eedd88;--e4:#ee8866;--e5:#ffaabb;--e6:#888888}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:17px/1.55 system-ui,-apple-system,"Segoe UI",sans-serif}
main{max-width:1080px;margin:0 auto;padding:2.2rem 1rem 4rem}
h1{font-size:clamp(1.8rem,6vw,2.9rem);line-height:1.1;margin:0 0 .7rem;letter-spacing:-.02em}
h2{font-size:1.35rem;line-height:1.25;margin:3.2rem 0 .5rem}
p,ul,ol{max-width:70ch}.lead{font-size:1.15rem;line-height:1.5}.dim{color:var(--dim)}.small{font-size:.9rem}
.numbers{display:grid;gap:.8rem;grid-template-columns:repeat(auto-fit,minmax(min(100%,220px),1fr));margin:1.4rem 0;padding:0}
.numbers div{background:var(--card);border:1px solid var(--grid);border-radius:14px;padding:.8rem 1rem}
.numbers b{display:block;font-size:1.9rem;line-height:1.15;color:var(--learned);font-variant-numeric:tabular-nums}
.panels{display:grid;gap:1rem;grid-template-columns:repeat(auto-fit,minmax(min(100%,420px),1fr))}
.panels.three{grid-template-columns:repeat(auto-fit,minmax(min(100%,290px),1fr))}
figure{margin:0;background:var(--card);border:1px solid var(--grid);border-radius:12px;padding:.6rem}
figure.one{max-width:620px}
svg{display:block;width:100%;height:auto}
.key{display:flex;flex-wrap:wrap;gap:.3rem 1.2rem;padding:0;margin:.8rem 0;list-style:none;font-size:.95rem;max-width:none}
.key i{display:inline-block;width:1.6em;height:0;border-top:3px solid;vertical-align:middle;margin-right:.45em}
.key i.dash{border-top-style:dashed}
i.chip,.key i.chip{display:inline-block;width:.95em;height:.95em;border:0;border-radius:3px;vertical-align:-.08em}
.strips{display:grid;gap:.8rem;grid-template-columns:repeat(auto-fit,minmax(min(100%,420px),1fr))}
.strip{background:var(--card);border:1px solid var(--grid);border-radius:12px;padding:.55rem .7rem}
.strip.unknown{border:2px solid var(--glow)}
.strip h3{font-size:.95rem;margin:0 0 .25rem;font-weight:600}
.strip svg{height:auto}
.strip .bands{display:grid;grid-template-columns:5.6em 1fr;gap:.15rem .4rem;align-items:center;font-size:.78rem}
.strip .bands svg{width:100%;height:1.05rem}.strip .bands svg.tall{height:2.2rem}
.strip .bands span{color:var(--dim)}
.rows{width:100%;border-collapse:collapse;font-size:.92rem;font-variant-numeric:tabular-nums;margin:.4rem 0 1rem}
.rows caption{text-align:left;font-weight:600;padding:.9rem 0 .2rem}
.rows th,.rows td{padding:.3rem .5rem .3rem 0;text-align:right;border-bottom:1px solid var(--grid);vertical-align:top}
.rows th:first-child,.rows td:first-child{text-align:left}.rows th{font-weight:500;color:var(--dim)}
.rows tr.ours td{font-weight:600}
.twocol{display:grid;gap:0 2.4rem;grid-template-columns:repeat(auto-fit,minmax(min(100%,420px),1fr))}
pre{background:var(--card);border:1px solid var(--grid);border-radius:12px;padding:.9rem 1rem;font-size:.86rem;line-height:1.5;
white-space:pre-wrap;overflow-wrap:anywhere;max-width:100%}
code{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
p code,li code{background:var(--card);border:1px solid var(--grid);border-radius:5px;padding:.05em .3em;font-size:.88em;
overflow-wrap:anywhere}
.promise{border-left:4px solid var(--learned);padding:.1rem 0 .1rem 1rem}
a{color:var(--learned)}
@media (max-width:480px){body{font-size:16px}.rows{font-size:.84rem}}
"""
