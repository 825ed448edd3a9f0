"""What the demo's page adds to the style that all pages share."""

STYLE = """
:root{--learned:var(--blue);--isotropic:var(--orange);--ensemble:var(--purple);--tuned:var(--green);--none:var(--grey);--scratch:var(--ochre);
--e0:#4477aa;--e1:#66ccee;--e2:#228833;--e3:#ccbb44;--e4:#ee6677;--e5:#aa3377;--e6:#bbbbbb}
@media (prefers-color-scheme:dark){:root{
--e0:#77aadd;--e1:#99ddff;--e2:#44bb99;--e3:#eedd88;--e4:#ee8866;--e5:#ffaabb;--e6:#888888}}
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
.twocol{display:grid;gap:0 2.4rem;grid-template-columns:repeat(auto-fit,minmax(min(100%,420px),1fr))}
.promise{border-left:4px solid var(--learned);padding:.1rem 0 .1rem 1rem}
.rows tr.ours td{font-weight:600}
"""
