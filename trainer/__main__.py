"""``python -m cohort_gnn.trainer RUN/run.json``: the trainer program of ``cohort train``, ``digest`` and ``bench``.

With ``-`` it loads its packages while the launcher finds out what there is to do (base/early.py).
"""

import gc
import sys

from cohort_gnn.base.early import Argument
from cohort_gnn.trainer.gpu_context import begin_context
from cohort_gnn.trainer.late_meta import put_off_meta

if __name__ == "__main__":
    argument, collects = Argument(sys.argv[1], begin_context), gc.isenabled()
    put_off_meta()
    gc.disable()  # what packages make stays: looking for garbage takes a tenth of the time in which they are loaded
    from cohort_gnn.trainer.program import run_program

    gc.freeze()
    if collects:
        gc.enable()
    run_program(argument)
