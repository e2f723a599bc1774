"""Prints what a wheel contains and needs, as CycloneDX JSON: contents.py VERSION, on the machine that built it.

The parts are those of launch/licenses/NOTICES.md. Versions come from Debian's packages, and from what launch/wheel.sh
has left in build/wheel.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

from requirements import ROOT, requirements

WHEELS = ROOT / "build/wheel"
PACKAGES = {"fmt": "libfmt-dev", "JSON for Modern C++": "nlohmann-json3-dev", "libstdc++": "libstdc++-12-dev"}
OLD_PACKAGES = {"METIS": "metis_*.dsc", "libgomp": "libgomp1_*.deb"}
OF_NANOBIND = ("nanobind", "robin-map")  # its package has both


def version_of(name: str) -> str:
    """Of the part that was compiled in."""
    if name in PACKAGES:
        command = ["dpkg-query", "--show", "--showformat=${Version}", PACKAGES[name]]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
    if name in OLD_PACKAGES:
        (file,) = (WHEELS / "system-x86_64/apt").glob(OLD_PACKAGES[name])
        return re.split(r"_|\.dsc$", file.name)[1]
    cache = (WHEELS / "cp312/build/CMakeCache.txt").read_text()
    if name in OF_NANOBIND:
        (folder,) = re.findall(r"^nanobind_DIR:PATH=(.*)/nanobind/cmake$", cache, re.M)
        (info,) = Path(folder).glob("nanobind-*.dist-info")
        return f"of nanobind {info.stem.split('-')[1]}"
    (nvcc,) = re.findall(r"^CMAKE_CUDA_COMPILER:\w+=(.*)$", cache, re.M)
    text = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout
    return f"of CUDA {re.findall(r'V([0-9.]+)', text)[0]}"


def parts() -> list[dict]:
    """The rows of the table in NOTICES.md."""
    rows = re.findall(r"^\| \[?([^|\]]+)(?:\]\(([^)]*)\))?[^|]*\| ([^|]*) \| ([^|]*) \| ([^|]*) \|$", NOTICES, re.M)
    return [
        {
            "type": "library",
            "name": name.strip(),
            "version": version_of(name.strip()),
            "copyright": holder,
            "description": place,
            "licenses": [{"license": {"name": text}}],
            **({"externalReferences": [{"type": "website", "url": url}]} if url else {}),
        }
        for name, url, place, holder, text in rows
        if name.strip() not in ("project", "---")
    ]


def needed() -> list[dict]:
    """What pip installs beside the wheel, any version that fits."""
    names = [(line, re.split(r"[^\w.-]", line, maxsplit=1)[0]) for line in requirements(["project"])]
    return [
        {"type": "library", "name": name, "scope": "required", "purl": f"pkg:pypi/{name}", "description": line}
        for line, name in names
    ]


NOTICES = (ROOT / "launch/licenses/NOTICES.md").read_text()

if __name__ == "__main__":
    product = {"name": "cohort-gnn", "version": sys.argv[1], "licenses": [{"license": {"id": "Apache-2.0"}}]}
    component = {"type": "library", "purl": f"pkg:pypi/cohort-gnn@{sys.argv[1]}"} | product
    document = {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1, "metadata": {"component": component}}
    print(json.dumps(document | {"components": [*parts(), *needed()]}, indent=2))
