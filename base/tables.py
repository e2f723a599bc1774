"""Tables of text, for a terminal or a page."""

from dataclasses import dataclass, field, replace

WIDE = 10_000  # characters of a line in a file or a pipe


@dataclass
class TextTable:
    """Text in rows and columns, with a line below that explains them.

    Attributes:
        dispensable: names of columns that are left out in a narrow terminal, the first one first.
    """

    title: str
    columns: list[str]
    rows: list[list[str]] = field(default_factory=list)
    note: str = ""
    dispensable: tuple[str, ...] = ()

    def fitting(self, width: int) -> "TextTable":
        """The table in so many characters a line, if enough columns are dispensable; its note names those left out."""
        if not self.dispensable:
            return self
        columns, left_out = list(zip(self.columns, *self.rows, strict=True)), []
        for name in self.dispensable:
            if sum(max(map(len, cells)) + 2 for cells in columns) <= width:  # 2: what parts it from the next
                break
            columns = [cells for cells in columns if cells[0] != name]
            left_out.append(name)
        names, *rows = map(list, zip(*columns, strict=True))
        narrow = f"too narrow for: {', '.join(left_out)}\n" if left_out else ""
        return replace(self, columns=names, rows=rows, note=narrow + self.note)

    def as_rich(self):
        """For a console: the first column begins at the left, others end at the right; nothing is cut off."""
        from rich import box
        from rich.table import Table as RichTable
        from rich.text import Text

        shown = RichTable(title=Text(self.title), box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
        for i, name in enumerate(self.columns):
            shown.add_column(Text(name), justify="right" if i else "left", no_wrap=True)
        for row in self.rows:
            shown.add_row(*map(Text, row))
        return shown


def print_tables(*tables: TextTable) -> None:
    """Prints tables on standard output: numbers that are cut off say nothing, so columns are whole or left out."""
    from rich.console import Console
    from rich.text import Text

    terminal, console = Console(), Console(highlight=False, width=WIDE)
    for table in tables:
        table = table.fitting(terminal.width if terminal.is_terminal else WIDE)
        console.print(table.as_rich())
        if table.note:
            console.print(Text(table.note))
