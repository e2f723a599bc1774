"""The page of a report: sections of tables and charts, in HTML that needs nothing beside itself."""

import base64
import html
from dataclasses import dataclass, field

from cohort_gnn.base.tables import TextTable

MOST_ROWS = 30  # of a table that is open at first

_STYLE = """
:root { color-scheme: light dark; --ink: #1f2328; --soft: #59636e; --line: #d8dee4; --card: #f6f8fa; --page: #fff }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6edf3; --soft: #9aa4af; --line: #3d444d; --card: #161b22; --page: #0d1117 }
}
* { box-sizing: border-box }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 76em; margin: 0 auto; padding: 1em; color: var(--ink);
       background: var(--page) }
h1 { font-size: 1.5em; overflow-wrap: anywhere; margin: 0.4em 0 }
h2 { font-size: 1.25em; margin: 1.6em 0 0.4em; border-bottom: 1px solid var(--line) }
h3 { font-size: 1em; margin: 1.2em 0 0.2em }
p { margin: 0.4em 0; overflow-wrap: anywhere }
p.note, figcaption, summary { color: var(--soft); font-size: 0.9em }
p.score { font-size: 1.1em } p.score strong { font-size: 1.9em; margin-right: 0.25em }
p.warning { border-left: 4px solid #d1495b; padding-left: 0.7em }
.scroll { overflow-x: auto }
table { border-collapse: collapse; margin: 0.3em 0 }
th, td { padding: 0.2em 0.7em; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap;
         font-variant-numeric: tabular-nums }
th:first-child, td:first-child { text-align: left; padding-left: 0 }
table.facts { width: 100% }
table.facts td { text-align: left; white-space: normal; overflow-wrap: anywhere; vertical-align: top }
table.facts td:first-child { color: var(--soft); width: 18em; overflow-wrap: normal }
table.facts tr.head { display: none }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 24em), 1fr)); gap: 1em }
figure { margin: 0; max-width: 36em }
img { display: block; width: 100%; height: auto; background: #fff; border: 1px solid var(--line); border-radius: 6px }
@media (max-width: 40em) { table.facts td:first-child { width: 7em } th, td { padding: 0.2em 0.5em } }
"""


@dataclass
class Chart:
    """A PNG.

    Attributes:
        name: of the file report-NAME.png.
        caption: what it shows, and how to read it.
    """

    name: str
    caption: str
    png: bytes


@dataclass
class Section:
    """A part of a page.

    Attributes:
        score: (what stands out, what it is), above all else.
        warnings: below it.
    """

    title: str
    charts: list[Chart] = field(default_factory=list)
    tables: list[TextTable] = field(default_factory=list)
    score: tuple[str, str] | None = None
    warnings: list[str] = field(default_factory=list)


def page(title: str, sections: list[Section]) -> str:
    """An HTML page that needs nothing beside itself: no script, no network."""
    escaped = html.escape(title)
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    lines = [
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        f"<title>{escaped}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<h1>{escaped}</h1>",
    ]
    for section in sections:
        lines += _section_html(section)
    return "\n".join([*lines, "</body>\n</html>\n"])


def _section_html(section: Section) -> list[str]:
    lines = [f"<section>\n<h2>{html.escape(section.title)}</h2>"]
    if section.score:
        value, what = map(html.escape, section.score)
        lines.append(f'<p class="score"><strong>{value}</strong> {what}</p>')
    lines += [f'<p class="warning">{html.escape(warning)}</p>' for warning in section.warnings]
    if section.charts:
        lines += ['<div class="charts">', *map(_chart_html, section.charts), "</div>"]
    lines += [_table_html(table, table.title != section.title) for table in section.tables]
    return [*lines, "</section>"]


def _chart_html(chart: Chart) -> str:
    data, caption = base64.b64encode(chart.png).decode(), html.escape(chart.caption)
    image = f'<img alt="{caption}" src="data:image/png;base64,{data}">'
    return f"<figure>{image}<figcaption>{caption}</figcaption></figure>"


def _table_html(table: TextTable, is_named: bool) -> str:
    """Two columns are facts, whose texts wrap; wider tables scroll. Long ones are closed at first."""
    is_facts = len(table.columns) == 2

    def row(cells: list[str], tag: str) -> str:
        head = ' class="head"' if tag == "th" else ""
        return f"<tr{head}>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    head, body = row(table.columns, "th"), "\n".join(row(cells, "td") for cells in table.rows)
    kind = ' class="facts"' if is_facts else ""
    text = f'<div class="scroll"><table{kind}>\n{head}\n{body}\n</table></div>'
    if len(table.rows) > MOST_ROWS:
        text = f"<details><summary>{len(table.rows)} rows</summary>\n{text}</details>"
    title = f"<h3>{html.escape(table.title)}</h3>\n" if is_named else ""
    return title + text + (f'\n<p class="note">{html.escape(table.note)}</p>' if table.note else "")
