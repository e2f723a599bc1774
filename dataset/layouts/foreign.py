"""Files and folders of graphs in formats that are not read: what they are, and what makes sources of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.files import demand_regular

OF_PYG = "cohort.from_pyg(torch_geometric.utils.from_networkx({}), OUT)"
NETWORKX = {  # suffix -> the format, and the function that reads it
    ".graphml": ("GraphML", "read_graphml"),
    ".gml": ("GML", "read_gml"),
    ".gexf": ("GEXF", "read_gexf"),
    ".net": ("Pajek", "read_pajek"),
    ".paj": ("Pajek", "read_pajek"),
    ".lgr": ("LEDA", "read_leda"),
    ".leda": ("LEDA", "read_leda"),
    ".adjlist": ("an adjacency list of networkx", "read_adjlist"),
    ".g6": ("graph6", "read_graph6"),
    ".s6": ("sparse6", "read_sparse6"),
}
COORDINATES = "; its data.x and data.y are coordinates: set them to your features and labels before"
TRIPLES = (
    "write head, relation and tail as a table of texts, and the nodes as one; graph.yaml reads both: "
    "edges: [{type: [entity, '*', entity], file: triples.parquet, source: head, target: tail, relation: relation}]"
)
RDF = dict.fromkeys((".nt", ".nq", ".ttl", ".trig", ".rdf", ".owl", ".jsonld"), ("triples of RDF", TRIPLES))
EDGES_OF_IGRAPH = "numpy.save('edges.npy', numpy.array(igraph.Graph.Read('{0}').get_edgelist()).T)"
OTHERS = {
    ".graphmlz": ("GraphML, compressed by gzip", "gunzip it, and " + OF_PYG.format("networkx.read_graphml(FILE)")),
    ".lgl": ("LGL of igraph", EDGES_OF_IGRAPH),
    ".ncol": ("NCOL of igraph", "--format csv --header no reads it, with --weight-column 2; text ids: graph.yaml"),
    ".h5ad": (
        "an AnnData",
        "of a = anndata.read_h5ad('{0}'): scipy.sparse.save_npz('edges.npz', a.obsp[NAME]) are edges with weights,"
        " numpy.save('x.npy', a.obsm[NAME]) features",
    ),
}
EXPORT_OF_KUZU = "EXPORT DATABASE 'DIR' (format='parquet')"
JSON_LINES = "in DuckDB: COPY (FROM read_json('{0}')) TO 'table.parquet'"
ARCHIVE = "an archive of tar", "tar xf {0} takes its files out"
OTHERS |= {
    ".jsonl": ("lines of JSON", JSON_LINES),
    ".ndjson": ("lines of JSON", JSON_LINES),
    ".zip": ("an archive of zip", "unzip {0} takes its files out"),
    **dict.fromkeys((".tar", ".tgz"), ARCHIVE),
    **{
        suffix: (f"a table of {name}", f"pandas.read_{function}('{{0}}').to_parquet('table.parquet')")
        for suffix, name, function in (
            (".xlsx", "Excel", "excel"),
            (".xls", "Excel", "excel"),
            (".ods", "OpenDocument", "excel"),
            (".dta", "Stata", "stata"),
            (".sas7bdat", "SAS", "sas"),
            (".sav", "SPSS", "spss"),
        )
    },
}
TABLES_OF_KUZU = (
    f"of {EXPORT_OF_KUZU}, or with header=true, a graph.yaml there has nodes: {{A: {{file: A.parquet, id: a.id}}}} and "
    "edges: [{type: [A, NAME, B], file: NAME_A_B.parquet, source: a.id, target: b.id}]"
)
TABLES_OF_DGL = (
    "a graph.yaml there has nodes: {node: {file: nodes.csv, id: node_id, label: label, features: x.npy}} and edges: "
    "[{type: [node, to, node], file: edges.csv, source: src_id, target: dst_id}]; rows in one field are no features"
)
ZARR = "numpy.save('x.npy', zarr.open('{0}')[:]), of a group zarr.open('{0}')[NAME][:]"


def _has(*patterns: str) -> Callable[[Path], bool]:
    return lambda folder: all(next(folder.glob(pattern), None) is not None for pattern in patterns)


FOLDERS: list[tuple[Callable[[Path], bool], str, str]] = [
    (_has("*_A.txt", "*_graph_indicator.txt"), "many small graphs of TUDataset",
     "Cohort learns labels of the nodes of one large graph; labels of graphs are for PyG's DataLoader"),
    (_has("schema.cypher", "copy.cypher"), "an export of Kuzu", TABLES_OF_KUZU),
    (lambda folder: _known(folder / "meta.yaml") is not None, "a CSVDataset of DGL", TABLES_OF_DGL),
    (_has("_versions", "data"), "a table of Lance", "cohort.from_tables takes lance.dataset('{0}') as a table"),
    (_has("zarr.json"), "an array of Zarr", ZARR),
    (_has(".zgroup"), "arrays of Zarr", ZARR),
    (_has(".zarray"), "an array of Zarr", ZARR),
    (_has("part0/graph.dgl"), "a partitioned graph of DGL", "import the graph before it was partitioned"),
]  # fmt: skip
BEGINNINGS = [  # of files
    (rb"\s*\[\s*\{", "rows of JSON", JSON_LINES),
    (rb"(?ms).*^dataset_name\s*:", "a CSVDataset of DGL", TABLES_OF_DGL),
    (rb"KUZU", "a database of Kuzu", f"{EXPORT_OF_KUZU} in it writes its tables, which graph.yaml describes"),
    (rb"\x3f\xa1\xb4\x46\xf0\x4f\x2e\xdd", "a graph of DGL", "g = dgl.load_graphs('{0}')[0][0], and "
     "cohort.from_tensors of its arrays, as docs/how-to/graph.md shows"),
    (rb"%\s*(sym|asym|bip)", "an edge list of KONECT", "--format csv --columns 0,1 reads it, with --weight-column 2; "
     "ids begin at 1"),
    (rb'\s*\{[^}]*"version"\s*:\s*"gconstruct', "a configuration of GraphStorm", "its tables are read by a graph.yaml: "
     "node_id_col is id, source_id_col source, dest_id_col target, and relation type"),
    (rb'(?s)\s*\{.*"multigraph"\s*:', "node-link data of networkx",
     OF_PYG.format("networkx.node_link_graph(json.load(open('{0}')))")),
    (rb'(?s)\s*\{.*"part_method"\s*:', "a partitioned graph of DGL", "import the graph before it was partitioned"),
]  # fmt: skip


def demand_no_foreign(source: Path) -> None:
    """Raises CohortError for a file or folder of a format that is known, and not read."""
    if known := _known(source):
        what, cure = known
        raise CohortError(str(source), "a source in a known format", what, cure.replace("{0}", source.name))


def _known(source: Path) -> tuple[str, str] | None:
    if source.is_dir():
        return next(((what, cure) for looks_so, what, cure in FOLDERS if looks_so(source)), None)
    suffix = source.suffix.lower()
    if suffix in NETWORKX:
        name, function = NETWORKX[suffix]
        cure = OF_PYG.format(f"networkx.{function}('{{0}}')")
        return name, cure + COORDINATES if name == "Pajek" else cure
    if known := (RDF | OTHERS).get(suffix):
        return known
    if ".tar" in source.suffixes[-2:-1]:
        return ARCHIVE
    head = _head(source)
    return next(((what, cure) for pattern, what, cure in BEGINNINGS if re.match(pattern, head)), None)


def _head(file: Path) -> bytes:
    """The first bytes; none of a file that cannot be read, which whoever reads it says."""
    try:
        demand_regular(file)
        with open(file, "rb") as opened:
            return opened.read(8192)
    except OSError:
        return b""
