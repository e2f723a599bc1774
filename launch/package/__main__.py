"""``python -m cohort``: the command ``cohort``."""

import sys

from cohort.launch.main import main

sys.exit(main())
