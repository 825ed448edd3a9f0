"""How the report looks: light and dark, on a phone and on a desk, with no font or script from elsewhere."""

STYLE = """
:root{color-scheme:light dark;--ink:#1d1d1f;--dim:#5e5e63;--grid:#e2e2e4;--paper:#fafaf8;--card:#fff;--link:#005f9e;
--good:#0b7a4b;--half:#9a5b00;--bad:#b3261e;--ours:#4b4bb8}
@media (prefers-color-scheme:dark){:root{--ink:#e9e9e6;--dim:#a5a5aa;--grid:#3a3a3f;--paper:#151517;--card:#1f1f22;
--link:#7cc4f5;--good:#4fd39a;--half:#f0b24a;--bad:#ff8f86;--ours:#aab0ff}}
*{box-sizing:border-box}
html{scroll-behavior:smooth}
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.6 system-ui,-apple-system,"Segoe UI",sans-serif}
main{max-width:1180px;margin:0 auto;padding:2.2rem 1rem 5rem}
h1{font-size:clamp(1.7rem,5vw,2.6rem);line-height:1.12;margin:0 0 .5rem;letter-spacing:-.015em}
h2{font-size:1.45rem;margin:0;line-height:1.25}h3{font-size:1rem;margin:1.6rem 0 .3rem}
p,li{max-width:76ch}a{color:var(--link)}.dim{color:var(--dim)}.small{font-size:.88rem}
nav{display:grid;gap:.6rem;grid-template-columns:repeat(auto-fill,minmax(min(100%,260px),1fr));margin:1.6rem 0 0}
nav a{display:block;text-decoration:none;color:inherit;background:var(--card);border:1px solid var(--grid);border-radius:12px;
padding:.7rem .9rem}
nav a:hover,nav a:focus-visible{border-color:var(--link)}
nav b{display:block}
section{border-top:1px solid var(--grid);margin-top:3rem;padding-top:2rem}
.badge{display:inline-block;font-size:.78rem;font-weight:600;border:1px solid;border-radius:999px;padding:.05rem .6rem}
.reproduced{color:var(--good)}.partly{color:var(--half)}.not{color:var(--bad)}.beyond{color:var(--ours)}.none{color:var(--dim)}
.claim{font-size:1.06rem;margin:.4rem 0 .6rem}
.verdict{border-left:4px solid;padding:.1rem 0 .1rem 1rem;margin:1rem 0}
.verdict p{color:var(--ink);margin:.2rem 0}
figure{margin:1.2rem 0;background:var(--card);border:1px solid var(--grid);border-radius:12px;padding:.8rem;overflow-x:auto}
figure svg{display:block;width:100%;min-width:680px;height:auto}figure svg text{fill:currentColor}
.scroll{overflow-x:auto;margin:.2rem 0 1rem}
table{border-collapse:collapse;font-size:.88rem;font-variant-numeric:tabular-nums}
th,td{padding:.28rem .9rem .28rem 0;text-align:right;white-space:nowrap;border-bottom:1px solid var(--grid)}
th:first-child,td:first-child{text-align:left;position:sticky;left:0;background:var(--paper)}
th{font-weight:500;color:var(--dim);vertical-align:bottom}
details{margin:.6rem 0}summary{cursor:pointer;color:var(--link)}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.15rem 1rem;font-size:.9rem;margin:1rem 0 0}
dt{color:var(--dim)}dd{margin:0;overflow-wrap:anywhere}
code{background:var(--card);border:1px solid var(--grid);border-radius:5px;padding:.05em .35em;font-size:.9em}
@media print{section{break-inside:avoid-page}nav{display:none}}
"""
