"""Reading back what `cohort report` prints and writes."""

from html.parser import HTMLParser


class Page(HTMLParser):
    """The tables of an HTML page by their headings, these in order, and all that it refers to or embeds."""

    def __init__(self, text: str):
        super().__init__()
        self.tables, self.tags, self.links, self.titles, self._in, self._title = {}, set(), [], [], "", ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        self.links += [value for name, value in attributes if name in ("src", "href", "srcset", "action")]
        self._in = tag
        if tag == "tr":
            self.tables[self._title].append([])
        elif tag in ("td", "th"):
            self.tables[self._title][-1].append("")

    def handle_endtag(self, tag):
        self._in = ""

    def handle_data(self, data):
        if self._in in ("h2", "h3") and data.strip():
            self._title = data
            self.titles.append(data)
            self.tables[data] = []
        elif self._in in ("td", "th"):
            self.tables[self._title][-1][-1] += data


def page_of(folder) -> Page:
    return Page((folder / "report.html").read_text())


def columns_of(line: str) -> list[str]:
    """The cells of a line of a printed table: units stay with their numbers."""
    cells = []
    for word in line.split():
        if word in ("B", "KB", "MB", "GB", "TB", "%"):
            cells[-1] += f" {word}"
        else:
            cells.append(word)
    return cells
