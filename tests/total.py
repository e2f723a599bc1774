"""Adds up the test reports of tests/run.sh and prints the total.

total.py RESULTS [failed=RUNNER]... [not_run=TEXT]...

Exit status 1 when a test or a runner failed.
"""

import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path


def outcome(case: ElementTree.Element) -> str:
    """The outcome of one <testcase> of GoogleTest or pytest."""
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    if case.find("skipped") is not None or case.get("result") == "skipped" or case.get("status") == "notrun":
        return "skipped"
    return "passed"


def count(reports: list[Path]) -> Counter:
    cases = [case for report in reports for case in ElementTree.parse(report).iter("testcase")]
    return Counter(outcome(case) for case in cases)


def text(counts: Counter) -> str:
    return ", ".join(f"{counts[name]} {name}" for name in ("passed", "failed", "skipped"))


def main() -> int:
    results, notes = Path(sys.argv[1]), [note.split("=", 1) for note in sys.argv[2:]]
    cpp, python = count(sorted(results.glob("cpp*/*.xml"))), count(sorted(results.glob("pytest*.xml")))
    print(f"\ncohort: C++: {text(cpp)}\ncohort: Python: {text(python)}")
    failed = [value for key, value in notes if key == "failed"]
    for value in (value for key, value in notes if key == "not_run"):
        print(f"cohort: not run: {value}")
    total = cpp + python
    if not python:
        failed.append("pytest: no test was chosen")
    for runner in failed:
        print(f"cohort: this runner failed: {runner}")
    # A test program that crashes leaves no report: its runner still counts as a failure.
    total["failed"] = max(total["failed"], len(failed))
    print(text(total))
    return 1 if total["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
