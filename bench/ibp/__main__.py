"""Benchmarks of ibp on a GPU.

PYTHONPATH=build/python python bench/ibp [ARGUMENTS of ibp_bench]        one table of GB/s
PYTHONPATH=build/python python bench/ibp --paper [ARGUMENTS of paper.py]  the IBP paper's figures, redrawn here
"""

import subprocess
import sys
from pathlib import Path

import paper


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--paper"]:
        return paper.main(arguments[1:])
    if arguments[:1] in (["-h"], ["--help"]):
        print(__doc__)
        return 0
    return subprocess.run([paper.build_program(Path(paper.default_build()), "ibp_bench"), *arguments]).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
