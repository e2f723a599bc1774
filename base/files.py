"""Writing files that a reader never sees half done."""

import os
from pathlib import Path


def write_atomically(path: Path, text: str) -> None:
    """Replaces a file in one step."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(text)
    os.replace(temporary, path)
