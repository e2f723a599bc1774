"""``cohort dataset shard``: files that together hold the rows of a prepared data set."""

import numpy as np
import pytest
import torch
from processes import here, refused

from cohort_gnn import ibp
from cohort_gnn.dataset import generate, generate_typed
from cohort_gnn.dataset import open as open_dataset
from cohort_gnn.launch.main import main


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    out = tmp_path_factory.mktemp("shard") / "data"
    generate(out, kind="powerlaw", nodes=1000, edges=3000, dim=48, classes=5)
    assert main(["dataset", "prepare", str(out), "--codec", "exponent"]) == 0
    return out


@pytest.mark.parametrize(("parts", "words"), [(1, []), (3, ["--type", "node"]), (1000, [])])
def test_the_parts_are_the_rows_in_order(prepared, parts, words):
    assert main(["dataset", "shard", str(prepared), "--parts", str(parts), *words]) == 0
    found = [ibp.load(prepared / "shards" / f"{rank}-of-{parts}.ibp") for rank in range(parts)]
    sizes = [len(part) for part in found]
    assert max(sizes) - min(sizes) <= 1 and {part.profile.codec for part in found} == {"exponent"}
    rows = np.concatenate([ibp.decode(part) for part in found])
    assert np.array_equal(rows, open_dataset(prepared).x_float32())


def test_the_rows_of_one_of_several_types(tmp_path):
    generate_typed(tmp_path / "data", nodes=600, edges=3000, dim=40, dtype="float16", all_features=True)
    assert main(["dataset", "prepare", str(tmp_path / "data"), "--codec", "exponent", "--drop-raw"]) == 0
    assert main(["dataset", "shard", str(tmp_path / "data"), "--parts", "2", "--type", "paper"]) == 0
    files = sorted((tmp_path / "data" / "shards").iterdir())
    assert [file.name for file in files] == ["paper.0-of-2.ibp", "paper.1-of-2.ibp"]
    whole = ibp.load(open_dataset(tmp_path / "data").node_types["paper"].encoded_rows)
    parts = torch.cat([torch.as_tensor(ibp.decode(ibp.load(file))) for file in files])
    assert torch.equal(parts, torch.as_tensor(ibp.decode(whole)))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--parts", "0"], "--parts: expected an integer in [1, 1000], found 0"),
        (["--parts", "1001"], "--parts: expected an integer in [1, 1000], found 1001"),
        (["--parts", "2", "--type", "paper"], "--type: expected one of the node types node, found paper"),
    ],
)
def test_refuses_parts_that_there_cannot_be(prepared, capsys, words, told):
    assert main(["dataset", "shard", str(prepared), *words]) == 1 and told in capsys.readouterr().err


def test_refuses_rows_that_are_not_encoded(tmp_path, capsys):
    generate(tmp_path / "data", kind="sbm", nodes=50, edges=100, dim=4)
    refused(here("dataset", "shard", tmp_path / "data", "--parts", "2"), 1, "expected encoded feature rows, found none")
    generate_typed(tmp_path / "typed", nodes=600, edges=3000, dim=4)
    assert main(["dataset", "shard", str(tmp_path / "typed"), "--parts", "2"]) == 1
    assert "--type: expected one of the node types paper, author, field, found none" in capsys.readouterr().err
    assert main(["dataset", "shard", str(tmp_path / "typed"), "--parts", "2", "--type", "author"]) == 1
    assert "--type: expected a node type with features, found author" in capsys.readouterr().err


def test_prepare_tells_of_parts_of_earlier_rows(tmp_path, capsys):
    out = tmp_path / "data"
    generate(out, kind="powerlaw", nodes=100, edges=300, dim=8, classes=5)
    prepare, told = ["dataset", "prepare", str(out), "--codec", "exponent"], "parts of rows that were encoded before"
    assert main(prepare) == 0 and told not in capsys.readouterr().err
    assert main(["dataset", "shard", str(out), "--parts", "2"]) == 0
    np.save(out / "features.npy", np.load(out / "features.npy") + 1)
    assert main(prepare) == 0 and f"{out / 'shards'}: holds {told}" in capsys.readouterr().err
