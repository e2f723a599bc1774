"""``python -m cohort_gnn``: the command ``cohort``."""

import os
import sys

if not sys.flags.safe_path and sys.path[0] == os.getcwd():
    del sys.path[0]  # a random.py of the current folder is not the module random

try:
    from cohort_gnn.launch.main import program

    program()
except KeyboardInterrupt:  # while the modules are loaded
    sys.exit(130)
