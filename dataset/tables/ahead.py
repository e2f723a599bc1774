"""Work that threads do ahead of those who need its results."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import repeat
from typing import Any


def one_ahead(items: Iterator[Any]) -> Iterator[Any]:
    """The same; the next one is made while one is used."""
    return ahead(repeat(partial(next, items, None)), 1)


def ahead(reads: Iterable[Callable[[], Any]], number: int) -> Iterator[Any]:
    """What is read, in this order, up to a None; so many reads are under way or done while one's result is used."""
    # No `with`: it would wait for the threads where the garbage collector ends this generator, after an error in an
    # import, and that may be in any thread, which may hold a lock that the end of a thread needs. The threads of an
    # executor that nobody has any more end by themselves.
    threads = ThreadPoolExecutor(number)
    under_way: deque[Future] = deque()
    for read in _with_failure(reads):
        under_way.append(threads.submit(read))
        if len(under_way) > number:
            if (result := under_way.popleft().result()) is None:
                return
            yield result
    while under_way:
        yield under_way.popleft().result()


def _with_failure(reads: Iterable[Callable[[], Any]]) -> Iterator[Callable[[], Any]]:
    """The same; where there is no next one because of an error, one that raises it, after the results before it."""
    try:
        yield from reads
    except Exception as error:
        failure = error

        def fail() -> None:
            raise failure

        yield fail
