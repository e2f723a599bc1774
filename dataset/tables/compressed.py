"""Texts that are compressed: by gzip, bzip2, xz or zstd, as their names say."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import lzma
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from cohort_gnn.base.errors import CohortError

# The suffix of a file -> the program that makes it.
PROGRAMS = {".gz": "gzip", ".bz2": "bzip2", ".xz": "xz", ".zst": "zstd"}
HINT = "copy or download it again"


@contextlib.contextmanager
def opened(path: Path) -> Iterator[tuple[Any, Callable[[], int]]]:
    """The bytes of a file, decompressed if its name says so, and a function that gives the position in the file itself.

    Raises:
        CohortError: the file cannot be opened.
    """
    try:
        raw = open(path, "rb")
    except OSError as error:
        raise CohortError(str(path), "a readable file", error.strerror or str(error)) from error
    with raw:
        match path.suffix:
            case ".gz":
                stream: Any = gzip.GzipFile(fileobj=raw)
            case ".bz2":
                stream = bz2.BZ2File(raw)
            case ".xz":
                stream = lzma.LZMAFile(raw)
            case ".zst":
                import pyarrow as pa

                stream = pa.CompressedInputStream(pa.PythonFile(raw), "zstd")
            case _:
                stream = raw
        with stream:
            yield stream, raw.tell


def guarded(path: Path, read: Callable[[], bytes]) -> bytes:
    """What `read` gives.

    Raises:
        CohortError: the file is damaged, or cannot be read.
    """
    program = PROGRAMS.get(path.suffix, "")
    try:
        return read()
    except EOFError as error:
        raise CohortError(str(path), "a whole text file", f"{program} data that end early", HINT) from error
    except gzip.BadGzipFile as error:
        raise CohortError(str(path), "a whole text file", "no gzip data, or damaged ones", HINT) from error
    except (zlib.error, lzma.LZMAError) as error:
        raise CohortError(str(path), "a whole text file", f"damaged {program} data", HINT) from error
    except OSError as error:
        if program in ("bzip2", "zstd") and error.errno is None:  # bz2 and Arrow have no errors of their own
            raise CohortError(str(path), "a whole text file", f"damaged {program} data", HINT) from error
        raise CohortError(str(path), "a readable file", error.strerror or type(error).__name__) from error
