"""``python -m cohort_gnn.trainer.predict JOB``: the program of ``cohort predict``.

With ``-`` it loads its packages while the launcher finds out what there is to do (base/early.py).
"""

import sys

from cohort_gnn.base.early import Argument
from cohort_gnn.base.late_meta import imports_first
from cohort_gnn.base.programs import end_program
from cohort_gnn.trainer.predict.early import EarlyWork

if __name__ == "__main__":
    with EarlyWork() as early:
        argument = Argument(sys.argv[1], early.begin)
        with imports_first():
            from cohort_gnn.trainer.predict.program import main
        code = main(argument.get(), early)
    end_program(code)
