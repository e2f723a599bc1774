"""The documents: their commands and examples run, options exist, links and the navigation lead somewhere."""

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import documents
import journeys
import pytest
import warm
from documents import ROOT, Block
from processes import ALL_TESTS, SECONDS_TO_START, wait_until

LANGUAGES = {"bash", "python", "diff", "toml", "json", "yaml", "dockerfile", "text"}
NEEDS = ["a GPU", "several GPUs", "a cluster", "Docker", "root", "minutes", "downloads", "yaml"]
SECONDS_OF_A_BLOCK = 120
# Sizes that pages name -> smaller ones, with which they run unless tests/run.sh --all runs them as they stand.
SMALLER = {
    "cohort train data/cora": "cohort train data/cora --hidden 16 --fanout 5,3",
    "cohort train data/small --epochs 3": "cohort train data/small --hidden 16 --fanout 5,3 --epochs 2",
    "cohort train data/small --fanout 10,5": "cohort train data/small --hidden 16 --fanout 5,3",
    "cohort train data/small --ranks 2": "cohort train data/small --hidden 16 --fanout 5,3 --ranks 2",
    "--fanout 10,5 --batch-size 512 --hidden 64": "--fanout 5,3 --batch-size 512 --hidden 16",
    "--fanout 15,10 --batch-size 256 --hidden 64": "--fanout 5,3 --batch-size 64 --hidden 16",
    "--layers pyg,cohort": "--layers pyg,cohort --steps 1",
    "--nodes 20K --edges 200K": "--nodes 2K --edges 20K",
    "--nodes 50K --edges 500K": "--nodes 5K --edges 50K",
    "--nodes 12K --edges 150K": "--nodes 2K --edges 25K",
    "--nodes 12K --edges 60K": "--nodes 2K --edges 10K",
    "--batch-size 256 --steps 3": "--batch-size 64 --steps 1 --amp off",
    "--epochs 4 --coarse-epochs 3": "--epochs 2 --coarse-epochs 1",
    "--epochs 3": "--epochs 2",
    "--epochs 5": "--epochs 2",
    "--epochs 20": "--epochs 2",
    "--epochs 40": "--epochs 2",
    "--epochs 42": "--epochs 3",
}
PAGES = [
    page for page in documents.pages() if any(block.language in ("bash", "python") for block in documents.blocks(page))
]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture(scope="module")
def parser():
    from cohort_gnn.launch.main import build_parser

    return build_parser()


@pytest.fixture(scope="module")
def environment(tmp_path_factory, shm) -> dict[str, str]:
    """One in which `cohort` and `python` are those under test, on the CPU."""
    programs = tmp_path_factory.mktemp("programs")
    warm.write_programs(programs)
    return os.environ | {"PATH": f"{programs}:{os.environ['PATH']}", "CUDA_VISIBLE_DEVICES": "", "COLUMNS": "120"}


def is_runnable(block: Block) -> bool:
    """Packages may be there; nothing else that a block needs is waited for."""
    if block.needs.partition(":")[0] == "yaml":
        return importlib.util.find_spec("yaml") is not None
    return not block.needs


def smaller(text: str) -> str:
    """A block with the sizes of SMALLER, which ends the same way but earlier."""
    pattern = "|".join(map(re.escape, SMALLER))
    return re.sub(rf"(?:{pattern})\b", lambda found: SMALLER[found[0]], text)


def run(block: Block, folder: Path, environment: dict[str, str]) -> None:
    text = block.text if ALL_TESTS else smaller(block.text)
    command = ["bash", "-euo", "pipefail", "-c"] if block.language == "bash" else [sys.executable, "-c"]
    result = subprocess.run(
        [*command, text],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS_OF_A_BLOCK,
    )
    assert result.returncode == 0, f"{block.place}: exit code {result.returncode}\n{text}\n{result.stdout[-4000:]}"


def prepare(page: Path, folder: Path) -> None:
    """What a page may take for granted: the tests' data as in a checkout, and small stand-ins for what it downloads."""
    (folder / "tests").symlink_to(ROOT / "tests")
    if name_of(page) in ("docs/how-to/graph.md", "docs/how-to/links.md"):
        layouts = documents.module(ROOT / "tests/dataset/layout_writers.py")
        graph = layouts.sample()
        layouts.write_ogb_links(folder / "ogbl_collab", graph, shared=True)
    if name_of(page) == "docs/how-to/graph.md":
        layouts.write_ogb(folder / "ogbn_arxiv", graph)
        layouts.write_planetoid(folder / "Cora/raw", layouts.planetoid_sample())
        layouts.write_igb(folder / "igb/tiny", graph)
        layouts.write_graphbolt(folder / "graphbolt", graph)
        layouts.write_legion(folder / "legion", graph)
    if name_of(page) == "docs/how-to/types.md":
        documents.module(ROOT / "tests/dataset/layout_writers.py")
        typed = documents.module(ROOT / "tests/dataset/typed_layout_writers.py")
        typed.write_ogb(folder / "ogbn_mag", typed.sample())
        typed.write_mag240m(folder / "mag240m_kddcup2021", typed.sample())
        typed.write_igbh(folder / "igb/tiny", typed.sample(tuple(typed.COUNTS), dim=1024))
        typed.write_chunked(folder / "chunks", typed.sample())
        typed.write_graphbolt(folder / "graphbolt", typed.sample())


def walk(page: Path, folder: Path, environment: dict[str, str]) -> None:
    """Does all that a page says, in order."""
    prepare(page, folder)
    for block in documents.blocks(page):
        if block.file:
            (folder / block.file).write_text(block.text)
        elif block.language in ("bash", "python") and is_runnable(block):
            run(block, folder, environment)


@pytest.mark.parametrize("page", sorted(PAGES), ids=name_of)
def test_the_blocks_of_a_page_run_in_order(page, tmp_path, environment):
    walk(page, tmp_path, environment)
    if check := journeys.AT_THE_END.get(name_of(page)):
        check(tmp_path)


def test_each_journey_is_checked():
    assert set(journeys.AT_THE_END) == {name_of(page) for page in PAGES if page.parent.name == "journeys"}


def test_sizes_are_made_smaller_where_pages_name_them():
    texts = [block.text for page in PAGES for block in documents.blocks(page) if block.language == "bash"]
    for size in SMALLER:
        assert any(size in text and SMALLER[size] in smaller(text) for text in texts), size
    assert smaller("--epochs 400 --nodes 12K") == "--epochs 400 --nodes 12K"


@pytest.mark.parametrize("page", documents.pages(), ids=name_of)
def test_blocks_say_what_they_are(page):
    for block in documents.blocks(page):
        drawing = block.language == "" and "->" not in block.text and "$" not in block.text
        assert drawing or block.language in LANGUAGES, f"{block.place}: {block.language!r} is none of {LANGUAGES}"
        needs = block.needs.partition(":")[0]
        assert needs in ["", *NEEDS], f"{block.place}: {needs!r} is none of {NEEDS}"


def pages_to_follow() -> list[Path]:
    """All but the one of commands that are refused, which bad_inputs_test.py runs."""
    return [page for page in documents.pages() if page.name != "bad-inputs.md"]


@pytest.mark.parametrize("page", pages_to_follow(), ids=name_of)
def test_every_command_line_is_one_that_cohort_takes(page, parser):
    for block in (block for block in documents.blocks(page) if block.language in ("bash", "dockerfile", "yaml")):
        for arguments in documents.commands(block.text, "cohort"):
            refusal = documents.refusal(parser, arguments)
            assert not refusal, f"{block.place}: cohort {shlex.join(arguments)}: {refusal}"
        for program in ("bash", "python"):
            for arguments in documents.commands(block.text, program):
                script = ROOT / arguments[0]
                assert not block.needs or "/" not in arguments[0] or script.exists(), (
                    f"{block.place}: no {arguments[0]}"
                )
    for code in re.findall(r"`([^`\n]+)`", documents.prose(page)):
        if code.startswith("cohort "):
            unknown = documents.unknown_options(parser, code.split()[1:])
            assert not unknown, f"{name_of(page)}: `{code}`: {unknown}"


def test_the_checks_see_what_is_wrong(parser):
    text = (
        "# needs a GPU\ncohort train a --gpus 0,1 && docker run x cohort plan b \\\n  --cache-ratio 2 | tail # cohort\n"
    )
    assert documents.commands(text, "cohort") == [["train", "a", "--gpus", "0,1"], ["plan", "b", "--cache-ratio", "2"]]
    assert "unrecognized arguments: --nowhere" in documents.refusal(parser, ["train", "a", "--nowhere"])
    assert "unrecognized arguments: --host-byte" in documents.refusal(parser, ["train", "a", "--host-byte", "1GB"])
    assert "expected an integer of at least 1" in documents.refusal(parser, ["train", "a", "--epochs", "0"])
    assert documents.refusal(parser, ["train", "a", "--epochs", "1"]) == ""
    assert documents.unknown_options(parser, ["train", "--ampp"]) == ["--ampp"]
    assert documents.unknown_options(parser, ["dataset", "mend", "DIR"]) == ["mend"]
    assert documents.unknown_options(parser, ["bench", "sample|fetch", "DIR", "--batches"]) == []


@pytest.mark.parametrize("page", documents.pages(), ids=name_of)
def test_links_lead_to_pages_and_headings(page):
    for path, anchor in documents.links(page):
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{name_of(page)}: no {path}"
        assert not anchor or anchor in documents.anchors(target), f"{name_of(page)}: no #{anchor} in {target.name}"


def test_the_navigation_has_every_page():
    listed = re.findall(r"^\s+- .*?: (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M)
    generated = set(documents.module(ROOT / "docs/hooks.py").generated_pages())
    missing = [path for path in listed if not ((ROOT / "docs" / path).is_file() or (ROOT / path).is_file())]
    assert set(missing) == generated
    assert {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")} <= set(listed)
    assert len(listed) == len(set(listed))


NAMES = ["cohort_gnn.NeighborLoader", "cohort_gnn.nn.SAGEConv", "cohort_gnn.dataset.open", "cohort_gnn.ibp.fetch"]


def test_the_reference_has_every_command_and_name():
    hooks = documents.module(ROOT / "docs/hooks.py")
    cli, python = hooks.generated_pages().values()
    for heading in ("cohort train", "cohort dataset import", "cohort bench step", "cohort ibp verify"):
        assert f"\n## {heading}\n" in cli
    assert r"| `--topology auto\|gpu\|host` |" in cli and "debug" not in cli and "%(" not in cli
    for name in NAMES:
        assert f"heading: {name}\n" in python


def test_every_argument_says_what_it_is(parser):
    for command, text in documents.module(ROOT / "docs/hooks.py").commands(parser):
        assert command.description or text, command.prog
        assert "``" not in (command.description or ""), command.prog
        for action in command._actions:
            assert action.help, f"{command.prog}: {action.dest}"


@pytest.mark.skipif(not ALL_TESTS, reason="takes 20 s: tests/run.sh --all runs it")
def test_the_site_builds_without_a_warning(tmp_path):
    if not all(map(importlib.util.find_spec, ("mkdocs", "material", "mkdocstrings"))):
        pytest.skip("mkdocs-material or mkdocstrings is not installed: the group docs of pyproject.toml")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", ROOT / "mkdocs.yml"]
    result = subprocess.run([*command, "--site-dir", tmp_path], capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "cohort dataset import" in (tmp_path / "reference/cli/index.html").read_text()
    python = (tmp_path / "reference/python/index.html").read_text()
    assert all(name in python for name in NAMES) and "in-neighbours to draw per node" in python
    assert " at 0x" not in python and "_sampler" not in python


@pytest.mark.skipif(not ALL_TESTS, reason="tests/run.sh --all runs it, as it builds what is installed")
def test_the_reference_of_the_headers_builds_without_a_warning(tmp_path):
    if not shutil.which("doxygen"):
        pytest.skip("doxygen is not installed: apt-get install doxygen")
    install = ["cmake", "--install", os.environ.get("COHORT_BUILD", ROOT / "build"), "--component", "cpp"]
    subprocess.run([*install, "--prefix", tmp_path / "cpp"], check=True, capture_output=True)
    settings = (ROOT / "docs/Doxyfile").read_text()
    (tmp_path / "Doxyfile").write_text(settings.replace("build/", f"{tmp_path}/"))
    result = subprocess.run(["doxygen", tmp_path / "Doxyfile"], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    page = (tmp_path / "cpp-reference/html/ibp_8h.html").read_text()
    assert "Lossless, random-access compression" in page and "The memory stays the caller's." in page


def messages() -> list[str]:
    """The error messages that the page about trouble explains."""
    page = ROOT / "docs/troubleshooting.md"
    found = [line for block in documents.blocks(page) if block.language == "text" for line in block.text.splitlines()]
    assert len(found) > 15
    return found


@pytest.fixture(scope="module")
def sources() -> str:
    """All sources, with literals that stand one after the other joined."""
    rooms = ["base", "ibp", "dataset", "channel", "cache", "sampler", "trainer", "launch"]
    files = (
        path for room in rooms for path in (ROOT / room).rglob("*") if path.suffix in {".py", ".cc", ".cu", ".h", ".sh"}
    )
    return re.sub(r'"\s*\n\s*f?"', "", "\n".join(path.read_text() for path in sorted(files)))


@pytest.mark.parametrize("message", messages())
def test_an_explained_message_is_one_that_the_code_has(message, sources):
    """What stands as three dots is another each time."""
    pieces = [piece.strip(" ,.:()") for piece in re.split(r"\.\.\.|: expected |, found |^ *hint: ", message)]
    assert sum(map(len, pieces)) > 6
    for piece in pieces:
        assert piece in sources, f"{piece!r} of {message!r}"


def test_a_release_has_one_version():
    places = {
        "CMakeLists.txt": r"project\(cohort VERSION ([\d.]+)",
        "base/version.py": r'__version__ = "([\d.]+)"',
        "CITATION.cff": r"^version: ([\d.]+)",
        "CHANGELOG.md": r"^## ([\d.]+)",
    }
    found = {path: re.search(pattern, (ROOT / path).read_text(), re.M)[1] for path, pattern in places.items()}
    assert len(set(found.values())) == 1, found


def test_an_image_is_built_without_what_git_leaves_out():
    """Of `COPY . /src` in docs/how-to/containers.md; Docker looks for a name without a slash at the root alone."""
    ignored = (ROOT / ".gitignore").read_text().split()
    wanted = {name.strip("/") if name.startswith("/") else f"**/{name.strip('/')}" for name in ignored}
    assert set((ROOT / ".dockerignore").read_text().split()) == wanted | {".git"}


SCONTROL = '#!/bin/sh\necho "$@" >> requeued\n'


def test_the_batch_script_saves_requeues_and_goes_on(tmp_path, environment, shm):
    """docs/how-to/slurm.md, run as SLURM does: SIGTERM to the script alone, then the same job again."""
    (block,) = (block for block in documents.blocks(ROOT / "docs/how-to/slurm.md") if "#SBATCH" in block.text)
    script, run_folder = tmp_path / "job.sh", tmp_path / "runs/77"
    script.write_text(block.text.replace("--gpus 0,1 --epochs 100", "--epochs 400 --hidden 16 --batch-size 64"))
    env = environment | {"SLURM_JOB_ID": "77", "PATH": f"{tmp_path}:{environment['PATH']}"}
    (tmp_path / "scontrol").write_text(SCONTROL)
    (tmp_path / "scontrol").chmod(0o755)
    make = ["cohort", "dataset", "generate", "data/small", "--nodes", "1000", "--edges", "4000", "--dim", "4"]
    subprocess.run(make, cwd=tmp_path, env=env, check=True, capture_output=True)

    job = subprocess.Popen(["bash", script], cwd=tmp_path, env=env)
    try:
        wait_until(lambda: lines_of(run_folder / "metrics.jsonl") > 1, SECONDS_TO_START, "the first epochs")
        job.terminate()
        assert job.wait(timeout=SECONDS_TO_START) == 0
    finally:
        job.kill()
    assert (tmp_path / "requeued").read_text() == "requeue 77\n"
    before = lines_of(run_folder / "metrics.jsonl")
    assert 1 < before < 400 and (run_folder / "checkpoint.pt").exists()

    job = subprocess.Popen(["bash", script], cwd=tmp_path, env=env)
    try:
        wait_until(lambda: lines_of(run_folder / "metrics.jsonl") > before, SECONDS_TO_START, "the epochs after it")
    finally:
        job.terminate()
        job.wait(timeout=SECONDS_TO_START)


def lines_of(path: Path) -> int:
    return len(path.read_text().splitlines()) if path.exists() else 0
