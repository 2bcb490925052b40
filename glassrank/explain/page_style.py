"""How the HTML file looks: light and dark, no external resources, no scripts.

Each word's signal and query word are classes, `s3` and `t1`; two radio buttons before the text say
which of them is coloured. Colours stand beside a line style and a letter or number.
"""

from glassrank.explain.palette import colour, line

_STYLE = """
:root { color-scheme: light dark; --ink: #1a1a1a; --paper: #fff; --faint: #666; --edge: #ccc;
  --cold: 0 114 178; --warm: 213 94 0; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8e8e8; --paper: #16181c; --faint: #a0a0a0; --edge: #444;
    --cold: 86 180 233; --warm: 230 159 0; } }
body { margin: 1.5rem auto; max-width: 90rem; padding: 0 1rem; color: var(--ink);
  background: var(--paper); font: 1rem/1.6 system-ui, sans-serif; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.15rem; } h3 { font-size: 1rem; }
.two { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(28rem, 100%), 1fr));
  gap: 2rem; }
.wide { grid-column: 1 / -1; }
.text { white-space: pre-wrap; overflow-wrap: anywhere; }
.cut, .faint { color: var(--faint); }
.w sup { display: none; font-size: .65em; user-select: none; }
.scroll { overflow: auto; max-height: 32rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: bold; }
th, td { padding: .15rem .6rem; text-align: right; }
th:first-child, th[scope=row] { text-align: left; }
thead th { position: sticky; top: 0; background: var(--paper); border-bottom: 1px solid; }
.heat td { background: rgb(var(--cold) / var(--v)); }
.heat td.less { background: rgb(var(--warm) / var(--v)); }
.up { color: rgb(var(--cold)); } .down { color: rgb(var(--warm)); }
.tree, .tree ul { list-style: none; padding-left: 1.2rem; border-left: 1px solid var(--edge); }
.tree b { font-variant-numeric: tabular-nums; font-weight: normal; float: right; }
.tree > li { max-width: 32rem; }
summary { cursor: pointer; }
:focus-visible { outline: 3px solid rgb(var(--cold)); outline-offset: 2px; }
#by-signal:checked ~ main .bs, #by-term:checked ~ main .bt { display: inline; }
"""


def style(marks: int) -> str:
    """With a colour and a line for each of so many signals or query words."""
    rules = [_STYLE.strip()]
    for number in range(marks):
        tint = " ".join(str(int(colour(number)[at : at + 2], 16)) for at in (1, 3, 5))
        rules.append(
            f"#by-signal:checked ~ main .s{number}, #by-term:checked ~ main .t{number}, "
            f".key.s{number}, .key.t{number} {{ background: rgb({tint} / .25); "
            f"text-decoration: underline 2px {line(number)} {colour(number)}; }}"
        )
    return "\n".join(rules)
