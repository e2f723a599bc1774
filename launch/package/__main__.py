"""``python -m cohort_gnn``: the command ``cohort``."""

import sys

from cohort_gnn.launch.main import main

sys.exit(main())
