"""Recognises columns by their names: endpoints of edges, and ids."""

from __future__ import annotations

import re
from collections.abc import Sequence

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset.tables.table import TableFile, choose_columns, shortened

ENDS = [  # what an edge's source and its target are called
    *(("src", "dst"), ("src", "dest"), ("src", "tgt"), ("source", "target"), ("source", "destination")),
    *(("source", "dest"), ("from", "to"), ("head", "tail"), ("u", "v"), ("start", "end"), ("origin", "destination")),
    *(("sender", "receiver"), ("sender", "recipient"), ("citing", "cited"), ("follower", "followee")),
    *(("payer", "payee"), ("caller", "callee"), ("subject", "object"), ("row", "col"), ("row", "column")),
]
SOURCES, TARGETS = ({pair[end] for pair in ENDS} for end in range(2))
NO_WORD = {"id", "ids", "node", "nodes", "vertex", "idx", "index", "key", "name", "num", "number"}
LABELS = ("label", "labels", "y")
ID_NAMES = {
    *("id", "ids", "node", "nodeid", "nid", "vid", "vertex", "vertexid", "index", "idx", "nodeidx", "nodeindex"),
    *("rowid", "rowindex", "rownr", "rownumber", "nodename"),
}

NODE_ID_OF_NEO4J = re.compile(r"^[^:]*:ID(\(.*\))?$")  # personId:ID, :ID(Person)
IDS_OF_NEO4J = re.compile(r"(?<=ID)\((.*)\)$")  # whose ids: Person in :START_ID(Person)
TYPE_OF_VALUES = re.compile(r"(?<=.):[A-Za-z]+\d*(\[\])?$")  # in a name, as GraphLearn and Neo4j write it


def word_of(name: str) -> str:
    """The word in a name that says what it is: "source" of sourceId, source_node, SOURCE and source:int64."""
    name = TYPE_OF_VALUES.sub("", IDS_OF_NEO4J.sub("", name))
    parts = _parts_of(name)
    words = [part for part in parts if part not in NO_WORD] or parts
    word = "".join(words)
    short = re.sub(r"(node)?(id|idx)$", "", word)
    return short if short in SOURCES | TARGETS else word


def _parts_of(name: str) -> list[str]:
    return [part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)]


def end_columns(names: Sequence[str], types: tuple[str, str] | None = None) -> list[tuple[int, int]]:
    """The columns that are named as an edge's ends: by usual pairs of words, or as the types of the nodes."""
    words = [word_of(name) for name in names]
    pairs = [*ENDS]
    if types is not None and types[0] != types[1]:
        pairs.append((word_of(types[0]), word_of(types[1])))
    there = [pair for pair in pairs if all(words.count(word) == 1 for word in pair)]
    return sorted({(words.index(source), words.index(target)) for source, target in there})


def edge_columns(
    table: TableFile, cure: str, ends_first: bool = False, types: tuple[str, str] | None = None
) -> tuple[int, int]:
    """The columns of sources and of targets, by their names; of two columns whose names say nothing, the first is that
    of the sources.

    Args:
        cure: how the user names them.
        ends_first: in rows without names, the first two fields are the ends.
        types: of the nodes at both ends.

    Raises:
        CohortError: the names leave it open.
    """
    place, names = str(table.path), table.names
    known_words = {word for pair in ENDS for word in pair}
    for name in names:
        if names.count(name) > 1 and word_of(name) in known_words:
            choose_columns(place, names, [name])
    pairs = end_columns(names, types)
    if types is None or types[0] == types[1]:
        demand_one_type(place, names)
    if len(pairs) > 1:
        raise CohortError(place, "one pair of columns named as ends of edges", shortened(names), cure)
    if pairs:
        return pairs[0]
    if len(table.titles) > 2 and not (ends_first and not names):
        expected = "columns named src and dst or alike" if names else "two columns, or names of columns"
        raise CohortError(place, expected, shortened(table.titles), f"say which are the source and the target: {cure}")
    if names and _are_in_reverse(names[0], names[1]):
        raise CohortError(place, "the source before the target", shortened(names), f"say which is which: {cure}")
    return 0, 1


def _are_in_reverse(first: str, second: str) -> bool:
    """Whether names say that the first of two columns has the targets: dst_user and src_user, or node2 and node1."""
    pair = [re.fullmatch(r"(\D*)(\d+)(\D*)", name) for name in (first, second)]
    if pair[0] and pair[1] and pair[0].group(1, 3) == pair[1].group(1, 3):
        return int(pair[0][2]) > int(pair[1][2])
    sources, targets = SOURCES - TARGETS, TARGETS - SOURCES
    words = [{word_of(name), *(part for part in _parts_of(name) if len(part) > 1)} for name in (first, second)]
    return bool(words[0] & targets and not words[0] & sources or words[1] & sources and not words[1] & targets)


def may_be_two_types(source: str, target: str) -> bool:
    """Whether two columns of ids are called after unlike things, such as userId and movieId."""
    words = [word_of(name) for name in (source, target)]
    are_ids = all(re.search(r"id\b|[a-z]Id|ID|(^|_)id(_|$)", name) for name in (source, target))
    return are_ids and words[0] != words[1] and all(word.isalpha() and word not in SOURCES | TARGETS for word in words)


def demand_one_type(place: str, names: Sequence[str]) -> None:
    """Raises CohortError for headers of Neo4j that say that the ends have ids of two node types."""
    types = dict.fromkeys(match[1] for match in map(IDS_OF_NEO4J.search, names) if match)
    if len(types) > 1:
        hint = f"graph.yaml has a table for each: nodes: {{{', '.join(f'{type_}: ...' for type_ in types)}}}"
        raise CohortError(place, "edges between nodes of one type", f"ids of {' and of '.join(types)}", hint)


def is_id_name(name: str) -> bool:
    """Whether a column is called as columns of ids are."""
    if NODE_ID_OF_NEO4J.search(name):
        return True
    plain = re.sub(r"[^a-z0-9]", "", name.lower())
    return plain in ID_NAMES or plain.startswith("indexlevel")
