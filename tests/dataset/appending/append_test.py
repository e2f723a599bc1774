"""Data sets to which something was appended are those of an import of all, byte for byte."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from processes import ALL_TESTS
from random_graphs import TypedCase, files_of, random_case

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset import append, append_from_tables, changes_since, check, import_graph, state_of
from cohort_gnn.dataset import open as open_dataset
from cohort_gnn.dataset.importing.beside import SourceOptions

CASES = 2_000 if ALL_TESTS else 16
MEMORY = 16_000_000


def lists_of(data, relation) -> list[tuple]:
    """What each target node has in its list, with what the edges have beside."""
    edges = data.edge_types[relation]
    beside = [array for array in (edges.edge_weights, edges.edge_times, edges.edge_attr) if array is not None]
    arrays = [edges.indices, *beside]
    return [
        tuple(array[first:last].tobytes() for array in arrays)
        for first, last in zip(edges.indptr[:-1], edges.indptr[1:], strict=True)
    ]


def demand_changes(folder, state, before, counts) -> None:
    """The record says which lists are others than `before`, of all nodes that there are now."""
    data, changes = open_dataset(folder), changes_since(folder, state)
    assert changes.first_new == counts
    for relation in data.edge_types:
        old, now = before[relation], lists_of(data, relation)
        others = [node for node, edges in enumerate(now) if edges != (old[node] if node < len(old) else edges[:0])]
        others = [node for node in others if node < len(old) or any(now[node])]
        assert set(others) <= set(changes.changed_lists.get(relation, ()))


@pytest.mark.parametrize("seed", range(CASES))
def test_appended_parts_are_as_if_imported_at_once(tmp_path, seed):
    case = random_case(seed)
    options = case.options | {"memory": MEMORY}
    first, *others = case.parts
    inputs = SourceOptions(**case.write(tmp_path / "0", first))
    import_graph(tmp_path / "0" / "edges.npy", tmp_path / "data", inputs=inputs, **options)
    for number, part in enumerate(others, 1):
        data, state = open_dataset(tmp_path / "data"), state_of(tmp_path / "data")
        before = {relation: lists_of(data, relation) for relation in data.edge_types}
        inputs = SourceOptions(**case.write(tmp_path / str(number), part))
        gone = None
        if part.removed.size:
            case.write(tmp_path / f"removed-{number}", part, removed=True)
            gone = tmp_path / f"removed-{number}" / "edges.npy"
        edges = tmp_path / str(number) / "edges.npy" if part.ends.size or not len(part.x) else None
        if gone is not None and seed % 2:
            append(tmp_path / "data", remove_edges=gone, memory=MEMORY)
            gone = None
        append(tmp_path / "data", edges=edges, remove_edges=gone, inputs=inputs, memory=MEMORY)
        demand_changes(tmp_path / "data", state, before, {"node": data.num_nodes})
    inputs = SourceOptions(**case.write(tmp_path / "whole", case.whole()))
    import_graph(tmp_path / "whole" / "edges.npy", tmp_path / "fresh", inputs=inputs, **options)
    meta = (tmp_path / "data" / "meta.json").read_text()
    assert '"name": "edges"' in meta
    assert files_of(tmp_path / "data") == files_of(tmp_path / "fresh")
    assert check(tmp_path / "data") == []


@pytest.mark.parametrize("seed", range(CASES // 2))
def test_appended_tables_are_as_if_imported_at_once(tmp_path, seed):
    case = TypedCase(seed)
    options = {"memory": MEMORY, "reverse": case.reverse}
    import_graph(case.write(tmp_path / "first", case.tables[0]), tmp_path / "data", **options)
    data, state = open_dataset(tmp_path / "data"), state_of(tmp_path / "data")
    before = {relation: lists_of(data, relation) for relation in data.edge_types}
    source = case.write(tmp_path / "more", case.tables[1], appended=True)
    import_graph(
        case.write(tmp_path / "whole", case.whole()), tmp_path / "fresh", columns_from=tmp_path / "data", **options
    )
    gone = case.write(tmp_path / "gone", case.removed, appended=True)
    if seed % 3:
        append(tmp_path / "data", edges=source, remove_edges=gone, memory=MEMORY)
    else:
        append(tmp_path / "data", remove_edges=gone, memory=MEMORY)
        append_from_tables(tmp_path / "data", **case.in_memory(source, case.tables[1]), memory=MEMORY)
    counts = {type_: table.num_nodes for type_, table in data.node_types.items()}
    demand_changes(tmp_path / "data", state, before, counts)
    appended, fresh = files_of(tmp_path / "data"), files_of(tmp_path / "fresh")
    for files in (appended, fresh):  # called after its folder
        files["meta.json"] = files["meta.json"].replace(b'"first"', b'"x"').replace(b'"whole"', b'"x"')
    assert appended == fresh
    assert check(tmp_path / "data") == []


@pytest.mark.parametrize("beside", ["time", "features"])
@pytest.mark.parametrize("is_forward", [True, False])
def test_one_direction_alone_has_times_or_features(tmp_path, beside, is_forward):
    """Edges of one relation come: their reverses have nothing beside them, or need what they have to be given."""
    generator = np.random.default_rng(4)
    ends, numbers = generator.integers(5, size=(2, 30)), generator.integers(9, size=30)

    def described(name: str, edges: slice, relations: tuple[bool, ...]) -> Path:
        (tmp_path / name).mkdir()
        np.save(tmp_path / name / "to.npy", ends[:, edges])
        np.save(tmp_path / name / "from.npy", ends[::-1, edges])
        np.save(tmp_path / name / "numbers.npy", numbers[edges] if beside == "time" else numbers[edges, None])
        lines = []
        for forward in relations:
            keys = "type: [a, to, b], file: to.npy" if forward else "type: [b, from, a], file: from.npy"
            lines.append(f"{{{keys}{f', {beside}: numbers.npy' if forward == is_forward else ''}}}")
        nodes = "a: {count: 5}, b: {count: 5}" if len(relations) == 2 else ""
        text = f"name: same\nnodes: {{{nodes}}}\nedges: [{', '.join(lines)}]\n"
        (tmp_path / name / "graph.yaml").write_text(text + ("target: b\n" if nodes else ""))
        return tmp_path / name / "graph.yaml"

    both, more = (True, False), described("more", slice(20, 30), (True,))
    for name, edges in (("data", slice(20)), ("fresh", slice(30))):
        import_graph(described(f"{name}-source", edges, both), tmp_path / name)
    if is_forward:
        append(tmp_path / "data", edges=more)
        assert files_of(tmp_path / "data") == files_of(tmp_path / "fresh")
        return
    with pytest.raises(CohortError, match=f"expected edges of b, from, a, which have {beside}.* of their own"):
        append(tmp_path / "data", edges=more)


@pytest.mark.parametrize("has_times", [(False, False), (True, False), (True, True), (False, True)])
@pytest.mark.parametrize("have_own", [True, False])
def test_reverses_of_edges_with_times_and_features(tmp_path, has_times, have_own):
    """Edges of equal times and equal ends stand in the order of an import of all, also in the relation that is made."""
    if not have_own and not has_times[0]:
        return  # no edge has a time
    generator = np.random.default_rng(5)
    ends, times = generator.integers(6, size=(2, 90)), generator.integers(3, size=90)
    rows, born = generator.normal(size=(90, 2)).astype(np.float32), generator.integers(5, size=(2, 6))

    def described(name: str, edges: slice, nodes: bool) -> Path:
        (tmp_path / name).mkdir()
        for array, values in {"to": ends[:, edges], "times": times[edges], "rows": rows[edges]}.items():
            np.save(tmp_path / name / f"{array}.npy", values)
        for end in (0, 1):
            np.save(tmp_path / name / f"born{end}.npy", born[end])
        births = [f", time: born{end}.npy" if has else "" for end, has in enumerate(has_times)]
        types = [f"{name}: {{count: 6{time}}}" for name, time in zip("ab", births, strict=True)]
        own = ", time: times.npy" if have_own else ""
        text = f"name: same\nnodes: {{{', '.join(types) if nodes else ''}}}\n" + ("target: b\n" if nodes else "")
        text += f"edges: [{{type: [a, to, b], file: to.npy, features: rows.npy{own}}}]\n"
        (tmp_path / name / "graph.yaml").write_text(text)
        return tmp_path / name / "graph.yaml"

    for name, edges in (("data", slice(60)), ("fresh", slice(90))):
        import_graph(described(f"{name}-source", edges, True), tmp_path / name, reverse=True)
    more = described("more", slice(60, 90), False)
    if have_own and has_times == (False, True):
        with pytest.raises(CohortError, match="where b has times and each edge a reverse, found both"):
            append(tmp_path / "data", edges=more)
        return
    append(tmp_path / "data", edges=more)
    assert files_of(tmp_path / "data") == files_of(tmp_path / "fresh")
    more.write_text(more.read_text().replace("[a, to, b]", "[b, rev_to, a]"))
    with pytest.raises(CohortError, match="found those of its reverse" if have_own else "found (those|none)"):
        append(tmp_path / "data", edges=more)


def test_reverses_that_the_source_had_are_not_made_in_another_order(tmp_path):
    """Edges of equal times stand as the source had them, which an append of one relation does not know."""
    arrays = {"to": [[0, 0], [0, 1]], "back": [[1, 0], [0, 0]], "more": [[0], [0]], "more-back": [[0], [0]]}
    for name, ends in arrays.items():
        np.save(tmp_path / f"{name}.npy", np.array(ends))
        np.save(tmp_path / f"{name}-times.npy", np.zeros(len(ends[0]), np.int64))
        np.save(tmp_path / f"{name}-rows.npy", np.ones((len(ends[0]), 1), np.float32))

    def described(nodes: str, **relations: str) -> Path:
        lines = [
            f"{{type: [{type_}], file: {name}.npy, time: {name}-times.npy, features: {name}-rows.npy}}"
            for name, type_ in relations.items()
        ]
        (tmp_path / "graph.yaml").write_text(f"target: b\nnodes: {{{nodes}}}\nedges: [{', '.join(lines)}]\n")
        return tmp_path / "graph.yaml"

    nodes, to, back = "a: {count: 2}, b: {count: 2}", "a, to, b", "b, back, a"
    import_graph(described(nodes, to=to, back=back), tmp_path / "data")
    relation = open_dataset(tmp_path / "data").edge_types["b", "back", "a"]
    assert relation.reverse_of == ("a", "to", "b") and relation.indices.tolist() == [1, 0]
    with pytest.raises(CohortError, match=r"ascending order of their \(time, source\)(?s:.*)b, back, a, too"):
        append(tmp_path / "data", edges=described("", more=to))
    append(tmp_path / "data", edges=described("", **{"more": to, "more-back": back}))
    assert open_dataset(tmp_path / "data").edge_types["b", "back", "a"].indices.tolist() == [1, 0, 0]
