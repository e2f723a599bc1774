"""``python -m cohort_gnn.trainer.predict JOB``: the program of ``cohort predict``.

With ``-`` it loads its packages while the launcher finds out what there is to do (base/early.py).
"""

import sys

from cohort_gnn.base.early import Argument
from cohort_gnn.base.late_meta import imports_first
from cohort_gnn.base.programs import end_program

if __name__ == "__main__":
    argument = Argument(sys.argv[1])
    with imports_first():
        from cohort_gnn.trainer.predict.program import main
    end_program(main(argument.get()))
