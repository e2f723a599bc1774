"""``python -m cohort_gnn.trainer.serve JOB``: the program of ``cohort serve``."""

import sys

from cohort_gnn.base.late_meta import imports_first

if __name__ == "__main__":
    with imports_first():
        from cohort_gnn.trainer.serve.program import main
    sys.exit(main(sys.argv[1]))
