"""``python -m cohort_gnn.trainer.serve JOB``: the program of ``cohort serve``.

Ctrl-C ends it as SIGTERM does. Python's own handler raises an exception, which Python drops while it starts, and with
which a library of C++ that is being loaded aborts.
"""

import signal
import sys

from cohort_gnn.base.late_meta import imports_first

if __name__ == "__main__":
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # blocked since the launcher became this program
    with imports_first():
        from cohort_gnn.trainer.serve.program import main
    sys.exit(main(sys.argv[1]))
