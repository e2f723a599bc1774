#!/usr/bin/env bash
# numcodecs, which zarr needs, cannot be imported where zfpy's release 1.0.1.post0 is installed: it makes integers of the
# parts of zfpy's version, and "post0" is none. Without zfpy it imports.
#
# Needs: python3, PyPI; numcodecs==0.16.6 zfpy==1.0.1.post0 in a temporary venv. Seen: those. Guess before the run: the
# codec of zfp is there beside the others.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check numcodecs==0.16.6
cd "$work"
venv/bin/python -c 'import numcodecs; print("alone: numcodecs", numcodecs.__version__)'
venv/bin/python -m pip install -q --disable-pip-version-check zfpy==1.0.1.post0
venv/bin/python - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
try:
    import numcodecs
except ValueError as error:
    print("beside zfpy 1.0.1.post0:", error)
    assert "post0" in str(error)
else:
    raise SystemExit(f"numcodecs {numcodecs.__version__} imports")
PYTHON
