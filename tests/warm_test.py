"""Programs that are forked from tests/warm.py are those that fresh interpreters run."""

import json
import os
import signal
import subprocess
import sys

import pytest
import warm
from processes import ALL_TESTS

TELL = """
import json, os, signal, sys
was_imported = "torch" in sys.modules
import torch
def shown(name):
    texts = open(f"/proc/self/{name}").read().rstrip("\\0").split("\\0")
    return [text for text in texts if not text.startswith("COHORT_TESTS_FRESH=")]
print(json.dumps({
    "argv": sys.argv, "path": sys.path[0], "name": __name__, "cwd": os.getcwd(), "parent": os.getppid(),
    "env": dict(os.environ), "threads": torch.get_num_threads(), "in": sys.stdin.read(),
    "group": os.getpgid(0), "ignored": [n for n in range(1, 32) if signal.getsignal(n) == signal.SIG_IGN],
    "interrupt": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
    "shown": [shown("cmdline"), sorted(shown("environ"))],
    "was_imported": was_imported, "command": sys.orig_argv,
}))
"""


@pytest.fixture(autouse=True)
def forked(monkeypatch):
    """Also where all other programs are fresh ones (tests/run.sh --all)."""
    monkeypatch.setenv(warm.FRESH, "")


def told(arguments: list[str], env: dict[str, str], **options) -> dict:
    """What a program says of itself; of its descriptors it keeps those that it should have."""
    command = [sys.executable, *arguments]
    result = subprocess.run(command, input="a line", capture_output=True, text=True, env=env, timeout=60, **options)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


PLAIN, ELSEWHERE = ({}, {}), ({"OMP_NUM_THREADS": "1"}, {"cwd": "/"})
SESSION = ({"PYTHONUNBUFFERED": "1"}, {"start_new_session": True})
BOTH = tuple(one | other for one, other in zip(ELSEWHERE, SESSION, strict=True))


@pytest.mark.parametrize(
    ("kind", "more", "options"),
    [
        ("execve", *BOTH),
        *[(kind, *how) for kind in ("-c", "script", "execve") for how in (PLAIN, ELSEWHERE, SESSION)] * ALL_TESTS,
    ],
)
def test_a_forked_program_finds_what_a_fresh_one_finds(tmp_path, kind, more, options):
    script = tmp_path / "tell.py"
    script.write_text(TELL)
    arguments = ["-c", TELL, "--one", "ö"] if kind == "-c" else [str(script), "--one", "ö"]
    if kind == "execve":
        become = "import os, sys; os.execve(sys.executable, [sys.executable, *sys.argv[1:]], os.environ)"
        arguments = ["-c", become, *arguments]
    fresh = told(arguments, {**os.environ, **more, warm.FRESH: "1"}, **options)
    forked = told(arguments, {**os.environ, **more, warm.FRESH: ""}, **options)
    assert (fresh.pop("was_imported"), forked.pop("was_imported")) == (False, True)
    assert fresh["env"].pop(warm.FRESH) + forked["env"].pop(warm.FRESH) == "1" and fresh["parent"] == os.getpid()
    if options.get("start_new_session"):
        assert fresh.pop("group") != forked.pop("group")
    assert forked == fresh


@pytest.mark.parametrize(
    "text", ["raise SystemExit(7)", "1 / 0", "import os; os.abort()", "import sys; sys.exit('no')"]
)
def test_a_forked_program_ends_as_a_fresh_one(text):
    ends = []
    for fresh in ("", "1"):
        command, env = [sys.executable, "-c", text], os.environ | {warm.FRESH: fresh}
        result = subprocess.run(command, capture_output=True, text=True, env=env)
        ends.append((result.returncode, result.stderr.splitlines()[-1:]))
    assert ends[0] == ends[1]


def test_a_forked_program_has_the_filters_and_the_sitecustomize_of_a_fresh_one(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.told = sys.orig_argv[1:3]\n")
    text = "import sys, warnings as w; w.warn('some words', FutureWarning); w.warn('others'); print(sys.told)"
    command = [sys.executable, "-W", "ignore:some:FutureWarning", "-c", text + "; print('torch' in sys.modules)"]
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    said = []
    for fresh in ("", "1"):
        result = subprocess.run(command, capture_output=True, text=True, env=env | {warm.FRESH: fresh})
        assert "UserWarning: others" in result.stderr and "some words" not in result.stderr
        said.append(result.stdout.splitlines())
    told = str(command[1:3])
    assert said == [[told, "True"], [told, "False"]]


def test_a_forked_program_is_told_signals():
    # Python has a look at signals between two sleeps: it notices one that comes just before a sleep only after it.
    text = "import time; print('here', flush=True)\nfor _ in range(600): time.sleep(0.1)"
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        with subprocess.Popen(
            [sys.executable, "-c", text], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as process:
            assert process.stdout.readline() == b"here\n" and process.poll() is None
            process.send_signal(number)
            assert process.wait(timeout=30) == -number


def test_a_forked_program_begins_in_the_folder_of_its_parent(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    told = subprocess.run([sys.executable, "-c", "import os; print(os.getcwd())"], capture_output=True, text=True)
    assert told.stdout == f"{tmp_path}\n", told.stderr


def test_descriptors_are_those_that_are_passed():
    with open("/dev/null") as other, open("/dev/zero") as passed:
        text = f"import os; print(os.path.exists('/proc/self/fd/{other.fileno()}'), os.read({passed.fileno()}, 1))"
        process = subprocess.run([sys.executable, "-c", text], capture_output=True, pass_fds=[passed.fileno()])
    assert process.stdout == b"False b'\\x00'\n", process.stderr


def test_a_worker_of_pytest_uses_the_server_that_it_was_forked_with():
    text = "import warm; first = warm._server; warm.use(); print(first is warm._server, first is None)"
    told = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
    assert told.stdout == "True False\n", told.stderr


SPAWN = """
import multiprocessing, os, sys
queue_of = multiprocessing.get_context("spawn")
was_imported = "torch" in sys.modules

def tell(queue):
    queue.put([was_imported, __name__, os.getppid(), os.getcwd(), multiprocessing.current_process().name])

if __name__ == "__main__":
    os.chdir("/")
    queue = queue_of.SimpleQueue()
    process = queue_of.Process(target=tell, args=(queue,), name="one")
    process.start()
    assert queue.get() == [True, "__mp_main__", os.getpid(), "/", "one"]
    process.join()
    sys.exit(process.exitcode)
"""


def test_processes_that_are_spawned_are_forked(tmp_path):
    script = tmp_path / "spawn.py"
    script.write_text(SPAWN)
    result = subprocess.run([sys.executable, script], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_shells_have_the_commands(tmp_path):
    warm.write_programs(tmp_path)
    words = "import sys; print(sys.stdin.read() + 'torch' * ('torch' in sys.modules))"
    text = f'echo words | python -c "{words}"; cohort train x'
    env = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    result = subprocess.run(["bash", "-c", text], capture_output=True, text=True, env=env, cwd=tmp_path)
    assert result.returncode == 1 and "cohort: x: expected the folder" in result.stderr
    assert result.stdout == "words\ntorch\n"


def test_a_signal_right_after_the_start_is_not_lost():
    """Ten times: it may come before what was forked has taken the signals of a terminal for its own."""
    processes = []
    for _ in range(10):
        processes.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]))
        processes[-1].terminate()
    assert [process.wait(timeout=20) for process in processes] == [-signal.SIGTERM] * 10
