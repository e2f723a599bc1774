"""Files of YAML or JSON that describe a data set, decoded into structs; nothing in them can run."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from cohort_gnn.base.errors import CohortError

T = TypeVar("T", bound=msgspec.Struct)


def read_structured(path: Path, form: Literal["JSON", "YAML"], kind: type[T], what: str, hint: str) -> T:
    """The content of a file, of which unknown members are left out.

    Raises:
        CohortError: for a file that is missing, damaged or of another structure.
    """
    decode = msgspec.json.decode if form == "JSON" else msgspec.yaml.decode
    try:
        return decode(path.read_bytes(), type=kind)
    except ImportError as error:
        raise CohortError(str(path), "the package PyYAML", f"none ({error})", "python -m pip install pyyaml") from error
    except msgspec.ValidationError as error:
        raise CohortError(str(path), what, str(error), hint) from error
    except (OSError, ValueError, RecursionError, msgspec.DecodeError) as error:
        found = error.strerror if isinstance(error, OSError) and error.strerror else " ".join(str(error).split())
        raise CohortError(str(path), f"a readable {form} file", found, hint) from error
