"""``python -m cohort_gnn``: the command ``cohort``."""

import sys

try:
    from cohort_gnn.launch.main import main

    code = main()
except KeyboardInterrupt:  # while the modules are loaded
    code = 130
sys.exit(code)
