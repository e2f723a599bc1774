"""Files that are written beside other work."""

import threading
from pathlib import Path

import pytest

from cohort.base.files import FileWriter, json_of, write_atomically

LIMIT_SECONDS = 20.0


def test_files_are_written_in_order_and_all_of_them_in_the_end():
    written, may_go_on = [], threading.Event()
    with FileWriter() as writer:
        writer.write(lambda: (may_go_on.wait(LIMIT_SECONDS), written.append("first")))
        writer.write(lambda: written.append("second"))
        assert written == [], "the caller waited for the first"
        may_go_on.set()
        writer.write(lambda: written.append("third"))
        assert written[:1] == ["first"], "more than two wait"
    assert written == ["first", "second", "third"]


def refuse():
    raise ValueError("no")


def test_what_a_write_raises_is_heard_of():
    written = []
    with pytest.raises(ValueError, match="no"), FileWriter() as writer:
        writer.write(refuse)
    writer = FileWriter()
    writer.write(refuse)
    with pytest.raises(ValueError, match="no"):
        for _ in range(3):
            writer.write(lambda: written.append(1))
    with writer:
        pass
    assert written, "one that was given before it was heard of is written"


def test_a_failure_of_its_owner_does_not_lose_files():
    written = []
    with pytest.raises(KeyError), FileWriter() as writer:
        writer.write(lambda: written.append(1))
        raise KeyError
    assert written == [1]


def test_json_has_no_numbers_that_are_none():
    nan, inf = float("nan"), float("inf")
    assert json_of({"a": [nan, 1.5, (inf,)], "b": {"c": -inf, "d": "nan"}}) == (
        '{"a": [null, 1.5, [null]], "b": {"c": null, "d": "nan"}}'
    )


def test_an_error_is_not_hidden_by_what_tidies_up(tmp_path, monkeypatch):
    def refuse_to_write(*_):
        raise OSError(30, "Read-only file system: written")

    def refuse_to_remove(*_, **__):
        raise OSError(30, "Read-only file system: removed")

    monkeypatch.setattr(Path, "write_text", refuse_to_write)
    monkeypatch.setattr(Path, "unlink", refuse_to_remove)
    with pytest.raises(OSError, match="written"):
        write_atomically(tmp_path / "file", "text")
