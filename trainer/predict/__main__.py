"""``python -m cohort_gnn.trainer.predict job.json``: the program of ``cohort predict``."""

import sys
from pathlib import Path

from cohort_gnn.base.late_meta import imports_first
from cohort_gnn.base.programs import end_program

if __name__ == "__main__":
    with imports_first():
        from cohort_gnn.trainer.predict.program import main
    end_program(main(Path(sys.argv[1])))
