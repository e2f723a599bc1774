"""The command ``cohort``, as the installed script and as ``python -m cohort_gnn``."""

import os
import signal
import sys


def program() -> None:
    """The process of the command. Until the command begins, Ctrl-C ends it at once, as other signals do: what a handler
    raises between two steps of a module that is being loaded may crash it."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from cohort_gnn.launch.main import program

    program()


if __name__ == "__main__":
    if not sys.flags.safe_path and sys.path[0] == os.getcwd():
        del sys.path[0]  # a random.py of the current folder is not the module random
    program()
