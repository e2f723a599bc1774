"""``python -m cohort_gnn.trainer RUN/run.json``: the trainer program of ``cohort train``, ``digest`` and ``bench``.

With ``-`` it loads its packages while the launcher finds out what there is to do (base/early.py).
"""

import sys

from cohort_gnn.base.early import Argument
from cohort_gnn.base.late_meta import imports_first
from cohort_gnn.trainer.gpu_context import begin_context

if __name__ == "__main__":
    argument = Argument(sys.argv[1], begin_context)
    with imports_first():
        from cohort_gnn.trainer.program import run_program
    run_program(argument)
