"""The command ``cohort``, as the installed script and as ``python -m cohort_gnn``."""

import os
import sys


def program() -> None:
    """The process of the command; Ctrl-C ends it while its modules are loaded, too."""
    try:
        from cohort_gnn.launch.main import program

        program()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    if not sys.flags.safe_path and sys.path[0] == os.getcwd():
        del sys.path[0]  # a random.py of the current folder is not the module random
    program()
