#!/usr/bin/env bash
# rdflib writes doubles to Turtle and N3 with seven digits: of times in seconds since 1970 those of a quarter of an hour
# become one, and weights are rounded. N-Triples, RDF/XML and JSON-LD of the same graph have all digits. Turtle is the
# default of Graph.serialize.
#
# Needs: python3, PyPI; rdflib==7.6.0 in a temporary venv. Seen: that. Guess before the run: what is written is read,
# whatever the format.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check rdflib==7.6.0
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import rdflib
from rdflib import Graph, Literal, URIRef

print("rdflib", rdflib.__version__)
times = [1_700_000_123.0 + 60 * minute for minute in range(10)]
graph = Graph()
for edge, time in enumerate(times):
    graph.add((URIRef(f"http://example.org/{edge}"), URIRef("http://example.org/time"), Literal(time)))
read = {}
for form in ("turtle", "n3", "nt", "xml", "json-ld"):
    again = Graph().parse(data=graph.serialize(format=form), format=form)
    read[form] = sorted({float(value) for value in again.objects()})
print("10 times, written and read:", {form: [len(values), values[0]] for form, values in read.items()})
assert graph.serialize() == graph.serialize(format="turtle")
assert all(read[form] == times for form in ("nt", "xml", "json-ld")), "these have all digits"
assert all(read[form] == [1_700_000_000, 1_700_001_000] or len(read[form]) < 3 for form in ("turtle", "n3"))
PYTHON
