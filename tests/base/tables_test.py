"""Tables for a terminal: columns that have no room are left out whole, the least important ones first."""

from cohort_gnn.base.tables import TextTable

TABLE = TextTable(
    "t", ["epoch", "wait s", "fetch s", "loss"], [["1", "0.5000", "0.2500", ""]], "a note", ("fetch s", "loss")
)
WIDTHS = [7, 8, 9, 6]


def test_what_matters_least_goes_first():
    assert TABLE.fitting(sum(WIDTHS)) == TABLE
    narrow = TABLE.fitting(sum(WIDTHS) - 1)
    assert narrow.columns == ["epoch", "wait s", "loss"] and narrow.rows == [["1", "0.5000", ""]]
    assert narrow.note == "too narrow for: fetch s\na note"
    assert TABLE.fitting(1).columns == ["epoch", "wait s"]
