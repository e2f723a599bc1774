"""Tables of text, for a terminal or a page."""

from dataclasses import dataclass, field


@dataclass
class Table:
    """Text in rows and columns, with a line below that explains them."""

    title: str
    columns: list[str]
    rows: list[list[str]] = field(default_factory=list)
    note: str = ""

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


def print_tables(*tables: Table) -> None:
    """Prints tables on standard output, in full width: numbers that are cut off say nothing."""
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, width=10_000)
    for table in tables:
        console.print(table.as_rich())
        if table.note:
            console.print(Text(table.note))
