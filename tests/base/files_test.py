"""Files that are written beside other work."""

import threading

import pytest

from cohort.base.files import FileWriter

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
