"""Sources of other forms: compressed texts, ids that are UUIDs, unsigned or decimal, triples, links by time."""

from __future__ import annotations

import bz2
import decimal
import gzip
import lzma
import uuid
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption
import pytest

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset import from_tables, held_out, import_graph, original_ids, split_links
from cohort_gnn.dataset import open as open_dataset
from cohort_gnn.dataset.importing.beside import SourceOptions

E, V = 500, 40
RNG = np.random.default_rng(3)
ENDS = RNG.integers(V, size=(2, E))
ONES = {"table": pa.table({"x": np.ones(V, np.float32)}), "features": ["x"]}  # nodes without ids
COMPRESS = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": lambda text: bytes(pa.compress(text, "zstd")),
}


def lines(begin: int, end: int) -> bytes:
    return "".join(f"{source},{target}\n" for source, target in ENDS[:, begin:end].T).encode()


@pytest.mark.parametrize("suffix", COMPRESS)
@pytest.mark.parametrize("parts", [1, 2])
def test_compressed_texts_are_read_as_plain_ones(suffix, parts, tmp_path):
    (tmp_path / "edges.csv").write_bytes(b"src,dst\n" + lines(0, E))
    bounds = [0, E] if parts == 1 else [0, E // 3, E]
    heads = [b"src,dst\n", b""]
    pairs = zip(bounds, bounds[1:], strict=False)
    packed = [COMPRESS[suffix](head + lines(*pair)) for head, pair in zip(heads, pairs, strict=False)]
    (tmp_path / f"edges2.csv{suffix}").write_bytes(b"".join(packed))
    features = tmp_path / "x.npy"
    np.save(features, np.ones((V, 1), np.float32))
    for name in ("edges.csv", f"edges2.csv{suffix}"):
        import_graph(tmp_path / name, tmp_path / f"{name}.out", inputs=SourceOptions(features=features))
    plain, unpacked = (open_dataset(tmp_path / f"{name}.out") for name in ("edges.csv", f"edges2.csv{suffix}"))
    assert np.array_equal(plain.indptr, unpacked.indptr) and np.array_equal(plain.indices, unpacked.indices)


@pytest.mark.parametrize("suffix", COMPRESS)
@pytest.mark.parametrize("damage", ["cut", "flipped"])
def test_damaged_compressed_texts_are_refused(suffix, damage, tmp_path):
    data = COMPRESS[suffix](b"src,dst\n" + lines(0, E))
    middle = len(data) // 2
    data = data[:middle] if damage == "cut" else data[:middle] + bytes(255 - byte for byte in data[middle:])
    path = tmp_path / f"edges.csv{suffix}"
    path.write_bytes(data)
    with pytest.raises(CohortError) as error:
        import_graph(path, tmp_path / "out")
    assert str(path) in error.value.place and "whole text file" in error.value.expected


UUIDS = [uuid.UUID(int=int(RNG.integers(2**62)) << 64 | i) for i in range(V)]
IDS = {
    "uuid": pa.array([text.bytes for text in UUIDS], pa.binary(16)).cast(pa.uuid()),
    "uint64": pa.array([2**63 + 7 * i for i in range(V)], pa.uint64()),
    "small uint64": pa.array([7 * i for i in range(V)], pa.uint64()),
    "decimal": pa.array([decimal.Decimal(10**25 + i) for i in range(V)], pa.decimal128(38, 0)),
    "decimal with a scale": pa.array([decimal.Decimal(3 * i) for i in range(V)], pa.decimal128(20, 4)),
}
EXPECTED = {
    "uuid": [str(text) for text in UUIDS],
    "uint64": [str(2**63 + 7 * i) for i in range(V)],
    "small uint64": [7 * i for i in range(V)],
    "decimal": [str(10**25 + i) for i in range(V)],
    "decimal with a scale": [3 * i for i in range(V)],
}


@pytest.mark.parametrize("kind", IDS)
def test_ids_of_other_types_name_nodes(kind, tmp_path):
    ids = IDS[kind]
    nodes = pa.table({"key": ids, "x": pa.array(np.arange(V), pa.float32()), "y": pa.array(np.arange(V) % 2)})
    source, target = (ids.take(pa.array(end)) for end in ENDS)
    edges = pa.table({"a": source, "b": target})
    from_tables(
        tmp_path / "out",
        nodes={"user": {"table": nodes, "id": "key", "features": ["x"], "label": "y"}},
        edges={("user", "to", "user"): {"table": edges, "source": "a", "target": "b"}},
    )
    data = open_dataset(tmp_path / "out")
    order = np.lexsort(ENDS)
    assert np.array_equal(data.edge_types[("node", "to", "node")].edge_index(), ENDS[:, order])
    assert original_ids(tmp_path / "out").to_pylist() == EXPECTED[kind]


TEXTS = [f"u{i * i}" + "\u00e4" * (i % 3) + "-" * (i % 20) for i in range(V)]


def in_dictionaries(texts: pa.Array, more: Sequence[None] = ()) -> pa.ChunkedArray:
    """Chunks with dictionaries of their own, which have texts twice."""
    chunks = []
    for begin in range(0, len(texts), 70):
        part = texts[begin : begin + 70]
        twice = pa.concat_arrays([part, pa.array(list(more), part.type), part])
        places = [i if i % 2 else i - len(part) + len(twice) for i in range(len(part))]
        chunks.append(pa.DictionaryArray.from_arrays(pa.array(places, pa.int32()), twice))
    return pa.chunked_array(chunks)


FORMS = {
    "string": lambda texts: texts,
    "large_string": lambda texts: texts.cast(pa.large_string()),
    "string_view": lambda texts: texts.cast(pa.string_view()),
    "a slice": lambda texts: pa.concat_arrays([pa.array(["", "u0"]), texts, pa.array(["u1"])])[2:-1],
    "dictionaries": in_dictionaries,
    "dictionaries with a null that no row has": lambda texts: in_dictionaries(texts, [None]),
}
KEYS = {"source": "a", "target": "b"}


@pytest.mark.parametrize("form", FORMS)
def test_texts_of_any_form_name_nodes(form, tmp_path):
    form_of = FORMS[form]
    nodes = pa.table({"key": form_of(pa.array(TEXTS)), "x": pa.array(np.arange(V), pa.float32())})
    ends = (pa.array(TEXTS).take(pa.array(end)) for end in ENDS)
    edges = pa.table(dict(zip("ab", map(form_of, ends), strict=True)))
    from_tables(
        tmp_path / "memory",
        nodes={"user": {"table": nodes, "id": "key", "features": ["x"]}},
        edges={("user", "to", "user"): {"table": edges} | KEYS},
    )
    results = [tmp_path / "memory"]
    if "null" not in form:  # which pyarrow does not write
        pq.write_table(nodes, tmp_path / "nodes.parquet", row_group_size=7)
        pq.write_table(edges, tmp_path / "edges.parquet", row_group_size=70)
        (tmp_path / "graph.yaml").write_text(
            "nodes: {user: {file: nodes.parquet, id: key, features: [x]}}\n"
            "edges: [{type: [user, to, user], file: edges.parquet, source: a, target: b}]\n"
        )
        import_graph(tmp_path / "graph.yaml", tmp_path / "parquet")
        results.append(tmp_path / "parquet")
    for out in results:
        edges_there = open_dataset(out).edge_types[("node", "to", "node")].edge_index()
        assert np.array_equal(edges_there, ENDS[:, np.lexsort(ENDS)])
        assert original_ids(out).to_pylist() == TEXTS


class Keys(pyarrow.parquet.encryption.KmsClient):
    """That encrypts nothing."""

    def __init__(self, connection):
        super().__init__()

    def wrap_key(self, key_bytes, master_key_identifier):
        return key_bytes

    unwrap_key = wrap_key


@pytest.mark.parametrize("plaintext_footer", [False, True])
def test_encrypted_parquet_files_are_refused(plaintext_footer, tmp_path):
    """Of columns of those with a footer to read, pyarrow 26 ends the process."""
    encryption, table = pyarrow.parquet.encryption, pa.table({"src": ENDS[0], "dst": ENDS[1]})
    keys = {"footer_key": "f", "column_keys": {"c": ["dst"]}, "double_wrapping": False}
    how = encryption.EncryptionConfiguration(plaintext_footer=plaintext_footer, **keys)
    made = encryption.CryptoFactory(Keys).file_encryption_properties(encryption.KmsConnectionConfig(), how)
    pq.write_table(table, tmp_path / "edges.parquet", encryption_properties=made)
    with pytest.raises(CohortError, match="edges.parquet: expected a Parquet file, found an encrypted one"):
        import_graph(tmp_path / "edges.parquet", tmp_path / "out", inputs=SourceOptions(features="ones"))


def test_decimals_are_ends_of_edges_if_they_are_whole(tmp_path):
    nodes = {"user": ONES}
    for numbers, fits in ((ENDS, True), (ENDS + 0.5, False)):
        ends = [pa.array([decimal.Decimal(str(number)) for number in end], pa.decimal128(12, 2)) for end in numbers]
        edges = {("user", "to", "user"): {"table": pa.table({"src": ends[0], "dst": ends[1]})}}
        if fits:
            from_tables(tmp_path / "out", nodes=nodes, edges=edges)
            assert open_dataset(tmp_path / "out").num_edges == E
        else:
            with pytest.raises(CohortError, match="whole numbers"):
                from_tables(tmp_path / "no", nodes=nodes, edges=edges)


def triples() -> pd.DataFrame:
    frame = pd.DataFrame(ENDS.T, columns=["head", "tail"]).drop_duplicates()
    return frame.assign(
        long="/people/person/place_of_birth",
        relation=np.array(["likes", "knows", "blocks"])[np.arange(len(frame)) ** 2 % 3],
        at=np.arange(len(frame)),
    )


@pytest.mark.parametrize("skip", [False, True])
def test_a_column_of_relations_makes_edge_types(skip, tmp_path):
    frame = triples()
    people = pd.DataFrame({"id": np.arange(V // 2 if skip else V)})
    keys = {"source": "head", "target": "tail", "relation": "relation", "time": "at", "features": ["at"]}
    keys |= {"unknown_ids": "skip"} if skip else {}
    from_tables(
        tmp_path / "out",
        nodes={"person": {"table": people, "id": "id"}},
        edges={("person", "*", "person"): {"table": frame} | keys},
    )
    data = open_dataset(tmp_path / "out")
    assert {name for _, name, _ in data.edge_types} == set(frame["relation"])
    for name, rows in frame.groupby("relation"):
        rows = rows[(rows["head"] < len(people)) & (rows["tail"] < len(people))]
        edges = data.edge_types[("person", name, "person")]
        assert set(map(tuple, edges.edge_index().T)) == set(zip(rows["head"], rows["tail"], strict=True))
        time_of = {(head, tail): at for head, tail, at in zip(rows["head"], rows["tail"], rows["at"], strict=True)}
        expected = [time_of[pair] for pair in map(tuple, edges.edge_index().T)]
        assert np.array_equal(edges.edge_times, expected) and np.array_equal(edges.edge_attr[:, 0], expected)


@pytest.mark.parametrize(
    ("type_", "keys", "message"),
    [
        (("person", "*", "person"), {}, 'a name "\\*"'),
        (("person", "knows", "person"), {"relation": "relation"}, 'a name "\\*"'),
        (("person", "*", "person"), {"relation": "none"}, "a column none"),
        (("person", "*", "person"), {"relation": "at"}, "at most 128 relations"),
        (
            ("person", "*", "person"),
            {"relation": "long"},
            r"edges.person.\*.person: column long: expected names of 1 to 64",
        ),
    ],
)
def test_relations_that_are_not_named_rightly_are_refused(type_, keys, message, tmp_path):
    edges = {type_: {"table": triples(), "source": "head", "target": "tail"} | keys}
    with pytest.raises(CohortError, match=message):
        from_tables(tmp_path / "out", nodes={"person": {"count": V}}, edges=edges)


def timed(out: Path, times: np.ndarray) -> Path:
    edges = pa.table({"src": ENDS[0], "dst": ENDS[1], "at": times})
    return from_tables(out, nodes={"user": ONES}, edges={("user", "to", "user"): {"table": edges, "time": "at"}})


def test_links_of_two_node_types_by_time_are_the_latest(tmp_path):
    edges = pa.table({"src": ENDS[0], "dst": ENDS[1], "at": np.arange(E)})
    types = {("user", "likes", "item"): {"table": edges, "source": "src", "target": "dst", "time": "at"}}
    from_tables(tmp_path / "data", nodes={"user": ONES, "item": ONES}, edges=types, target="item")
    split_links(tmp_path / "data", tmp_path / "split", shares=(0.1, 0.2), negatives=3, by_time=True)
    held, last = held_out(tmp_path / "split"), {pair: at for at, pair in enumerate(map(tuple, ENDS.T.tolist()))}
    assert len(held["test"].pairs) == round(0.2 * len(last)) and len(held["val"].pairs) == round(0.1 * len(last))
    ascending = sorted(last.values())
    found = sorted([*held["val"].times.tolist(), *held["test"].times.tolist()])
    assert found == ascending[len(last) - len(found) :]


def test_links_by_time_are_the_latest(tmp_path):
    times = RNG.permutation(E) // 2
    split_links(timed(tmp_path / "data", times), tmp_path / "split", shares=(0.1, 0.2), negatives=3, by_time=True)
    pairs = {tuple(sorted(pair)): -1 for pair in ENDS.T if pair[0] != pair[1]}
    for (source, target), time in zip(ENDS.T, times, strict=True):
        if source != target:
            pairs[tuple(sorted((source, target)))] = max(pairs[tuple(sorted((source, target)))], time)
    held = held_out(tmp_path / "split")
    parts = {name: {tuple(sorted(pair)) for pair in links.pairs} for name, links in held.items()}
    data = open_dataset(tmp_path / "split").edge_types[("node", "to", "node")]
    kept = data.edge_index()
    for links in held.values():  # the last edge in the direction of the pair
        last = [times[(ENDS.T == pair).all(axis=1)].max() for pair in links.pairs]
        assert links.times.tolist() == last
    assert data.edge_times.max() < held["val"].times.min() <= held["val"].times.max() < held["test"].times.min()
    parts["train"] = {tuple(sorted(pair)) for pair in kept.T if pair[0] != pair[1]}
    assert set().union(*parts.values()) == set(pairs)
    spans = [[pairs[link] for link in parts[name]] for name in ("train", "val", "test")]
    assert max(spans[0]) < min(spans[1]) and max(spans[1]) < min(spans[2])
    assert len(parts["test"]) >= round(0.2 * len(pairs))


def test_negatives_by_time_are_what_is_no_edge_until_then(tmp_path):
    """A link of time t competes with items that exist then, also with those that the user buys only later."""
    users, born = 20, np.where(np.arange(60) < 55, 0, 1000)
    ends = np.stack([np.repeat(np.arange(users), 12), np.concatenate([RNG.permutation(55)[:12] for _ in range(users)])])
    times = RNG.permutation(ends.shape[1])
    edges = pa.table({"src": ends[0], "dst": ends[1], "at": times})
    nodes = {"user": {"count": users}, "item": {"table": pa.table({"since": born}), "time": "since"}}
    types = {("user", "likes", "item"): {"table": edges, "source": "src", "target": "dst", "time": "at"}}
    from_tables(tmp_path / "data", nodes=nodes, edges=types, target="item")
    split_links(tmp_path / "data", tmp_path / "split", shares=(0.3, 0.3), negatives=50, by_time=True)
    since = {(user, item): time for user, item, time in zip(*ends.tolist(), times.tolist(), strict=True)}
    later = 0
    for links in held_out(tmp_path / "split").values():
        for (user, _), time, others in zip(
            links.pairs.tolist(), links.times.tolist(), links.negatives.tolist(), strict=True
        ):
            there = [since.get((user, item), np.inf) for item in others]
            assert min(there) > time and max(others) < 55
            later += sum(np.isfinite(there))
    assert later > 100


def test_times_that_divide_nothing_are_refused(tmp_path):
    data = timed(tmp_path / "data", np.zeros(E, np.int64))
    with pytest.raises(CohortError, match="times that divide the links"):
        split_links(data, tmp_path / "split", by_time=True)
    plain = {("user", "to", "user"): {"table": pa.table({"src": ENDS[0], "dst": ENDS[1]})}}
    from_tables(tmp_path / "plain", nodes={"user": ONES}, edges=plain)
    with pytest.raises(CohortError, match="edges with times"):
        split_links(tmp_path / "plain", tmp_path / "split", by_time=True)


@pytest.mark.parametrize(
    ("suffix", "content", "found", "cure"),
    [
        (".arrow", b"PAR1...", "a Parquet file", "ends in .parquet"),
        (".parquet", b"ARROW1..", "an Arrow (Feather) file", "ends in .feather"),
        (".feather", b"FEA1....", "a Feather file of version 1", "pandas.read_feather('e.feather')"),
        (".arrow", b"\xff\xff\xff\xff\x10\0\0\0", "a stream of Arrow", "pyarrow.ipc.open_stream('e.arrow')"),
        (".parquet", b"src,dst\n0,1\n", "a text", "ends in .csv"),
        (".parquet", b"PAR1 and nothing else", "another, or one that is cut off", "copy it again"),
        (".arrow", b"", "another, or one that is cut off", "copy it again"),
    ],
)
def test_a_file_of_another_kind_than_its_name_says_is_named(tmp_path, suffix, content, found, cure):
    (tmp_path / f"e{suffix}").write_bytes(content)
    with pytest.raises(CohortError) as error:
        import_graph(tmp_path / f"e{suffix}", tmp_path / "out", inputs=SourceOptions(features="ones"))
    assert error.value.found == found and cure in error.value.hint
