"""meta.json of a data set: one form of all versions (dataset/FORMAT.md)."""

import json
from pathlib import Path
from typing import Any

from cohort_gnn.spec.graph import EDGE_TYPE, NODE_TYPE

OF_EDGES = ("indptr", "indices", "edge_weights", "edge_times")
OF_TARGET = ("labels", "train_ids", "val_ids", "test_ids")


def read_meta(folder: Path) -> dict[str, Any]:
    """meta.json of a data set, with what version 3 has: see `by_type`."""
    return by_type(json.loads((folder / "meta.json").read_bytes()))


def by_type(meta: dict[str, Any]) -> dict[str, Any]:
    """The content of a meta.json with the members "nodes", "edges" and "target" of version 3: itself where it has them.
    The node type and the edge type of versions 1 and 2 are NODE_TYPE and EDGE_TYPE."""
    if meta["version"] == 3:
        return meta
    files, features = meta["files"], {"dim": meta["feature_dim"], "dtype": meta["feature_dtype"]}
    nodes = {"type": NODE_TYPE, "count": meta["num_nodes"], "features": {"file": files["features"]} | features}
    nodes |= {"node_times": files["node_times"]} if "node_times" in files else {}
    edges = {"type": [*EDGE_TYPE], "count": meta["num_edges"]}
    edges |= {name: files[name] for name in OF_EDGES if name in files}
    edges |= {"features": meta["edge_features"]} if "edge_features" in meta else {}
    target = {"type": NODE_TYPE, "task": "classification", "label_dtype": "int64"}
    target |= {name: meta[name] for name in ("task", "label_dtype", "num_classes") if name in meta}
    target |= {name: files[name] for name in OF_TARGET}
    return meta | {"nodes": [nodes], "edges": [edges], "target": target}
