"""What the report adds to the style that all pages share."""

STYLE = """
:root{--good:#0b7a4b;--half:#9a5b00;--bad:#b3261e;--ours:#4b4bb8}
@media (prefers-color-scheme:dark){:root{--good:#4fd39a;--half:#f0b24a;--bad:#ff8f86;--ours:#aab0ff}}
html{scroll-behavior:smooth}
body{font-size:16px;line-height:1.6;overflow-wrap:anywhere}
main{max-width:1180px;padding-bottom:5rem}
h1{font-size:clamp(1.7rem,5vw,2.6rem);margin-bottom:.5rem}
h2{font-size:1.45rem;margin:0}h3{font-size:1rem;margin:1.6rem 0 .3rem}
p,li{max-width:76ch}.small{font-size:.88rem}
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
figure{margin:1.2rem 0;padding:.8rem;overflow-x:auto}
figure svg{min-width:680px}figure svg text{fill:currentColor}
.scroll{overflow-x:auto;margin:.2rem 0 1rem}
table{border-collapse:collapse;font-size:.88rem;font-variant-numeric:tabular-nums}
th,td{padding:.28rem .9rem .28rem 0;text-align:right;white-space:nowrap;border-bottom:1px solid var(--grid)}
th:first-child,td:first-child{text-align:left;position:sticky;left:0;background:var(--paper)}
th{font-weight:500;color:var(--dim);vertical-align:bottom}
details{margin:.6rem 0}summary{cursor:pointer;color:var(--link)}
@media print{section{break-inside:avoid-page}nav{display:none}}
"""
