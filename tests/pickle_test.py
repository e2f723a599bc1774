"""No pickle is ever loaded: every reader that could do so says that it does not."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ["base", "ibp", "dataset", "channel", "cache", "trainer", "launch"]
INERT = "dataset/layouts/inert_pickle.py"  # an unpickler that makes nothing but objects of its own
# What may run code that is in a file, unless this argument has this value.
LOADERS = {"torch.load": ("weights_only", True), "np.load": ("allow_pickle", False)}
FORBIDDEN = {"pickle.load", "pickle.loads", "pickle.Unpickler", "torch.jit.load", "joblib.load", "yaml.load", "eval"}
HARMLESS_BY_DEFAULT = {"np.load"}  # allow_pickle is False, unless somebody says otherwise


def wrong_calls(text: str) -> list[str]:
    """Calls of a Python source that could run what is in a file, by line."""
    wrong = []
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func).replace("numpy.", "np.")
        argument, value = LOADERS.get(name, (None, None))
        given = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
        unsafe = argument and given.get(argument, str(value) if name in HARMLESS_BY_DEFAULT else None) != str(value)
        if name in FORBIDDEN or unsafe:
            wrong.append(f"{node.lineno}: {ast.unparse(node)[:60]}")
    return wrong


def test_no_reader_loads_pickles():
    sources = [path for room in ROOMS for path in (ROOT / room).rglob("*.py")]
    loads = [path for path in sources if any(name in path.read_text() for name in LOADERS)]
    assert len(loads) >= 4, "the readers were not found"
    found = {str(path.relative_to(ROOT)): wrong_calls(path.read_text()) for path in sources}
    assert {name: calls for name, calls in found.items() if calls} == {}


def test_pickle_is_imported_where_nothing_runs():
    uses = [
        str(path.relative_to(ROOT))
        for room in ROOMS
        for path in (ROOT / room).rglob("*.py")
        if "import pickle" in path.read_text() or "from pickle" in path.read_text()
    ]
    assert uses == [INERT]


@pytest.mark.parametrize(
    "text",
    [
        "torch.load(f)",
        "torch.load(f, weights_only=False)",
        "np.load(f, allow_pickle=True)",
        "pickle.load(f)",
        "eval(f)",
    ],
)
def test_the_search_sees_a_call_that_could(text):
    assert wrong_calls(text)


@pytest.mark.parametrize("text", ["torch.load(f, weights_only=True)", "np.load(f)", "model.eval()", "json.load(f)"])
def test_the_search_lets_others_be(text):
    assert not wrong_calls(text)
