"""`cohort serve`: answers equal to those of a Scorer, and wrong or hostile requests that harm nobody else."""

import asyncio
import http.client
import itertools
import json
import os
import re
import resource
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pytest
from processes import SECONDS_TO_START, cohort, ran, refused, wait_until

import cohort_gnn
from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.programs import runs
from cohort_gnn.launch.run import serve, serve_workers
from cohort_gnn.trainer.serve import worker as serve_worker
from cohort_gnn.trainer.serve.app import Limits, Service
from cohort_gnn.trainer.serve.bodies import ARROW, Request, request_of
from cohort_gnn.trainer.serve.worker import Worker

pytest.importorskip("uvicorn")
pytest.importorskip("starlette")
pytest.importorskip("prometheus_client")

TOKEN = "a token of some length"
NODES, DIM = 300, 6
LIMITS = ["--max-body", "200KB", "--max-nodes", 500, "--max-connections", 8, "--max-edges", 3000]


class Served:
    """A server, and how to ask it."""

    def __init__(self, run: Path, data: Path, folder: Path, *options, port: int = 0):
        self.run, self.data, self.folder, self.options = run, data, folder, options
        token = folder / "token"
        token.write_text(TOKEN + "\n")
        words = ["serve", run, data, "--port", port, "--token-file", token, *LIMITS, *options]
        self.log = folder / "served.log"
        with open(self.log, "w") as log:
            command = [sys.executable, "-m", "cohort_gnn", *map(str, words)]
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        wait_until(
            lambda: "answers requests" in self.said or self.process.poll() is not None, SECONDS_TO_START, "serving"
        )
        found = re.search(r"127\.0\.0\.1:(\d+)", self.said)
        assert found, self.said
        self.port = int(found[1])

    @property
    def said(self) -> str:
        return self.log.read_text()

    def ask(self, body, path="/v1/scores", method="POST", **headers) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        body = json.dumps(body) if isinstance(body, dict) else body
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"} | named
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        status, content = answer.status, answer.read()
        connection.close()
        return status, content

    def scores(self, **request) -> np.ndarray:
        status, content = self.ask(request)
        assert status == 200, content
        return np.array(json.loads(content)["scores"], np.float32)

    def stop(self, number=signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(timeout=20)


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    generator = np.random.default_rng(2)
    folder = tmp_path_factory.mktemp("served") / "data"
    x = generator.standard_normal((NODES, DIM), np.float32)
    edges = generator.integers(0, NODES, (2, 2000))
    cohort_gnn.from_tensors(folder, x=x, y=generator.integers(0, 3, NODES), edge_index=edges, train_ids=np.arange(200))
    return folder


@pytest.fixture(scope="module")
def run(data, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("served") / "run"
    ran("train", data, "--device", "cpu", "--fanout", "3,3", "--hidden", 8, "--epochs", 1, "--quiet", "--out", out)
    return out


@pytest.fixture(scope="module")
def served(data, run, tmp_path_factory):
    server = Served(run, data, tmp_path_factory.mktemp("server"))
    yield server
    assert server.stop() in (0, 128 + signal.SIGTERM, -signal.SIGTERM)


NEW = {
    "nodes": [NODES, 7],
    "new_nodes": [{"x": [[0.5] * DIM]}],
    "new_edges": [{"source": [1, 2, NODES], "target": [NODES, NODES, 7]}],
}


def test_answers_are_those_of_a_scorer(served, data, run):
    answers = cohort_gnn.Scorer(run, data)
    expected = answers.score([7, 0]).numpy()
    assert np.array_equal(served.scores(nodes=[7, 0]), expected)
    whole, best = (json.loads(served.ask(request)[1]) for request in ({"nodes": [7]}, {"nodes": [7], "top_k": 1}))
    assert whole["class_names"] == ["0", "1", "2"] and best["classes"] == [[str(expected[0].argmax())]]
    added = {"new_nodes": {"x": NEW["new_nodes"][0]["x"]}, "new_edges": NEW["new_edges"][0]}
    assert np.array_equal(served.scores(**NEW), answers.score(NEW["nodes"], **added).numpy())
    status, content = served.ask({"nodes": [7], "output": "hidden"})
    assert status == 200 and np.array_equal(np.float32(json.loads(content)["hidden"]), answers.score([7], hidden=True))


def test_edges_with_times_and_features(tmp_path):
    """A run in time is served what `cohort predict` writes after the same nodes and edges were appended."""
    generator = np.random.default_rng(5)
    came, new = 6, NODES + 2
    x, y = generator.standard_normal((new, DIM), np.float32), generator.integers(0, 3, new)
    born, ends = generator.integers(0, 50, new), generator.integers(0, NODES, (2, 2000 + came))
    ends[0, -came:-2], ends[1, -2:] = NODES, NODES + 1
    times = generator.integers(0, 100, 2000 + came)
    rows = generator.standard_normal((2000 + came, 2), np.float32)
    for name, nodes, edges in (("before", NODES, 2000), ("after", new, 2000 + came)):
        of_edges = {"edge_index": ends[:, :edges], "edge_time": times[:edges], "edge_attr": rows[:edges]}
        cohort_gnn.from_tensors(tmp_path / name, x=x[:nodes], y=y[:nodes], node_time=born[:nodes], **of_edges)
    options = ["--device", "cpu", "--fanout", "3,3", "--hidden", 8, "--model", "gat", "--epochs", 1, "--quiet"]
    in_time = ["--time-attr", "edge_time", "--overlapping-times", "allow"]
    ran("train", tmp_path / "before", *options, *in_time, "--out", tmp_path / "run")
    out = tmp_path / "scores.npy"
    ran("predict", tmp_path / "run", tmp_path / "after", "--at-time", 60, "--device", "cpu", "--out", out, "--quiet")
    added = {"source": ends[0, -came:], "target": ends[1, -came:], "time": times[-came:], "edge_attr": rows[-came:]}
    request = {
        "nodes": list(range(new)),
        "at_time": 60,
        "new_nodes": [{"x": x[NODES:].tolist(), "time": born[NODES:].tolist()}],
        "new_edges": [{name: values.tolist() for name, values in added.items()}],
    }
    server = Served(tmp_path / "run", tmp_path / "before", tmp_path)
    try:
        assert np.array_equal(server.scores(**request), np.load(out))
        for member, words in (("at_time", "at_time: expected a time, found none"), ("new_edges", "")):
            status, content = server.ask({name: value for name, value in request.items() if name != member})
            assert (status, words in content.decode()) == (400 if words else 200, True)
        for part, member in (("new_nodes", "time"), ("new_edges", "edge_attr")):
            some = {name: value for name, value in request[part][0].items() if name != member}
            status, content = server.ask(request | {part: [some]})
            assert status == 400 and f"{member}: expected" in content.decode()
    finally:
        server.stop()


def arrow_of(request: dict) -> bytes:
    table, sink = pa.Table.from_pylist([request]), pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def test_arrow_in_and_out(served):
    expected = served.scores(**NEW)
    body = arrow_of(NEW)
    status, content = served.ask(body, Content_Type=ARROW, Accept=ARROW)
    assert status == 200, content
    with pa.ipc.open_stream(content) as reader:
        answer = reader.read_all()
    assert answer["id"].to_pylist() == NEW["nodes"]
    assert np.array_equal(np.array(answer["scores"].to_pylist(), np.float32), expected)
    assert served.ask(body[: len(body) // 2], Content_Type=ARROW)[0] == 400
    parts = [{"type": "a", "columns": {"size": [1]}}, {"type": "b", "columns": {"color": ["red"]}}]
    read = request_of(arrow_of({"nodes": [0], "new_nodes": parts}), ARROW)
    assert [part.columns for part in read.new_nodes] == [part["columns"] for part in parts]


def test_many_at_once(served, data, run):
    """Requests that are scored together get what each would get alone; a wrong one among them is refused alone."""
    expected = cohort_gnn.Scorer(run, data).score(range(40)).numpy()
    with ThreadPoolExecutor(6) as pool:
        wrong = [pool.submit(served.ask, {"nodes": [NODES + 5]}) for _ in range(6)]
        found = list(pool.map(lambda node: served.scores(nodes=[node, 3]), range(40)))
    assert np.array_equal(np.stack(found)[:, 0], expected) and all(
        np.array_equal(each[1], expected[3]) for each in found
    )
    assert {answer.result()[0] for answer in wrong} == {400}


def bad(status: int, words: str, body=None, **options):
    return pytest.param(status, words, {"nodes": [0]} if body is None else body, options, id=words[:24])


@pytest.mark.parametrize(
    ("status", "words", "body", "options"),
    [
        bad(400, "truncated", b"{"),
        bad(400, "utf-8", b'{"nodes": ["\xff"]}'),
        bad(400, "Expected `object`", b"[1]"),
        bad(400, "missing required field `nodes`", {}),
        bad(400, "unknown field `node`", {"nodes": [0], "node": 1}),
        bad(400, "expected the id of a node at least", {"nodes": []}),
        bad(400, "Expected `int | str`", {"nodes": [1.5]}),
        bad(400, "Expected `int | str`", {"nodes": [None]}),
        bad(400, "found 300", {"nodes": [NODES]}),
        bad(400, "found -1", {"nodes": [-1]}),
        bad(400, "found 1000000000000000000000", b'{"nodes": [1000000000000000000000]}'),
        bad(400, "Invalid enum value 'all'", {"nodes": [0], "output": "all"}),
        bad(400, "top_k: expected a number from 1 to 500", {"nodes": [0], "top_k": 0}),
        bad(400, "top_k: expected a number for targets", {"nodes": [0], "output": "hidden", "top_k": 2}),
        bad(400, "output: expected scores or hidden, of this run", {"nodes": [0], "output": "targets"}),
        bad(400, "6 features a node, found [1, 5]", {"nodes": [0], "new_nodes": [{"x": [[0.0] * 5]}]}),
        bad(400, "numbers", {"nodes": [0], "new_nodes": [{"x": [[0.0] * 6, [0.0] * 5]}]}),
        bad(400, "malformed", b'{"nodes": [0], "new_nodes": [{"x": [[NaN, 0, 0, 0, 0, 0]]}]}'),
        bad(400, "finite numbers", b'{"nodes": [0], "new_nodes": [{"x": [[1e300, 0, 0, 0, 0, 0]]}]}'),
        bad(400, "expected some of id, x, columns and time, found nothing", {"nodes": [0], "new_nodes": [{}]}),
        bad(400, "each type once", {"nodes": [0], "new_nodes": [{"x": [[0.0] * 6]}] * 2}),
        bad(
            400,
            "a mapping for some of node, found paper",
            {"nodes": [0], "new_nodes": [{"x": [[0.0] * 6], "type": "paper"}]},
        ),
        bad(400, "a new node at one end", {"nodes": [0], "new_edges": [{"source": [1], "target": [2]}]}),
        bad(400, "expected application/json", Content_Type="application/x-python-pickle"),
        bad(400, "a stream of Arrow", b"ARROW1\x00\x00", Content_Type=ARROW),
        bad(400, "Expected `array`, got `int`", arrow_of({"nodes": [0], "new_nodes": 5}), Content_Type=ARROW),
        bad(
            400, "Expected `object`, got `null`", arrow_of({"nodes": [0], "new_edges": [None, {}]}), Content_Type=ARROW
        ),
        bad(
            400,
            "recursion",
            b'{"nodes": [0], "new_nodes": [{"columns": {"a": ' + b"[" * 50_000 + b"]" * 50_000 + b"}}]}",
        ),
        bad(413, "expected at most 200.00 KB", b" " * 300_000),
        bad(413, "at most 500 in a request", {"nodes": [0] * 501}),
        bad(401, "the token of this service", Authorization="Bearer another"),
        bad(401, "the token of this service", Authorization=""),
        bad(401, "the token of this service", Authorization=TOKEN),
        bad(404, "expected POST /v1/scores", path="/v2/scores"),
        bad(405, "expected POST /v1/scores", method="GET"),
    ],
)
def test_wrong_requests_get_a_sentence(served, status, words, body, options):
    found, content = served.ask(body, **options)
    assert (found, words.lower() in json.loads(content)["error"].lower()) == (status, True), content


def test_hostile_connections(served):
    """Half of a body, none at all, and more connections than are served: the others are served on."""
    address = ("127.0.0.1", served.port)
    head = f"POST /v1/scores HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n"
    with socket.create_connection(address) as half:
        half.sendall((head + 'Content-Length: 100\r\n\r\n{"nodes"').encode())
        half.shutdown(socket.SHUT_WR)
    with socket.create_connection(address, timeout=15) as slow, socket.create_connection(address, timeout=5) as wrong:
        slow.sendall((head + 'Content-Length: 100\r\n\r\n{"nodes"').encode())
        wrong.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 HELLO\r\n\r\n")
        assert b" 400 " in wrong.recv(4096)
        assert served.scores(nodes=[0]).shape == (1, 3)
        assert b" 408 " in slow.recv(4096), "a body that does not come"
    open_ones = [socket.create_connection(address) for _ in range(8)]
    status, content = served.ask({"nodes": [0]})
    assert status == 503 and "at most 8 connections" in json.loads(content)["error"]
    assert served.ask(None, "/healthz", "GET")[0] == 200
    for connection in open_ones:
        connection.close()
    wait_until(lambda: served.ask({"nodes": [0]})[0] == 200, 10, "the end of the others")


def test_what_it_tells(served):
    served.scores(nodes=[0])
    status, told = served.ask(None, "/metrics", "GET")
    counts = dict(line.rsplit(" ", 1) for line in told.decode().splitlines() if not line.startswith("#"))
    assert status == 200 and float(counts["cohort_nodes_total"]) > 0 and 'cohort_requests_total{status="200"}' in counts
    described = json.loads(served.ask(None, "/openapi.json", "GET")[1])
    assert set(described["components"]["schemas"]["Request"]["properties"]) >= {"nodes", "new_nodes", "new_edges"}
    scores = described["paths"]["/v1/scores"]["post"]
    assert set(scores["responses"]) == {"200", "400", "401", "408", "413", "500", "503"}
    assert scores["requestBody"]["required"] and set(scores["requestBody"]["content"]) == {"application/json", ARROW}
    assert served.ask({"nodes": [0]}, Authorization=f"bearer {TOKEN}")[0] == 200
    assert "Traceback" not in served.said and TOKEN not in served.said
    assert TOKEN not in " ".join(Path(f"/proc/{served.process.pid}/cmdline").read_text().split("\0"))


def test_a_change_that_a_library_fails_to_read_is_told_and_the_next_one_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(serve_worker, "LOOK_SECONDS", 0.01)
    scorers = iter([Mock(), OSError("the disk failed"), Mock()])

    def make():
        scorer = next(scorers)
        if isinstance(scorer, Exception):
            raise scorer
        return scorer

    meta = tmp_path / "meta.json"
    meta.write_text("1")
    worker = Worker(make, meta, 4, pytest.fail)
    worker.start()
    meta.write_text("22")
    wait_until(lambda: worker.problem == "the disk failed", 10, "the failure")
    meta.write_text("333")
    wait_until(lambda: worker.reloads == 1 and not worker.problem, 10, "the next change")
    worker.stop()


def test_a_refused_request_waits_no_more():
    worker = Mock(num_waiting=1, reloads=0)
    worker.scorer.predicts_links = False
    service = Service(worker, Limits(1000, 10, 5, 5, 5), None, lambda: 0)

    def ask(_):
        refused_later = Future()

        def refuse():
            worker.num_waiting = 0
            refused_later.set_exception(CohortError("nodes", "the id of a node", "another"))

        asyncio.get_running_loop().call_soon(refuse)
        return refused_later

    worker.ask = ask

    async def answered(path: str, body: bytes = b"") -> bytes:
        parts = []

        async def receive():
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(part):
            parts.append(part.get("body", b""))

        method = "POST" if body else "GET"
        scope = {"type": "http", "method": method, "path": path, "headers": [], "query_string": b"", "root_path": ""}
        await service.app(scope, receive, send)
        return b"".join(parts)

    assert b"expected the id of a node" in asyncio.run(answered("/v1/scores", b'{"nodes": [1]}'))
    assert b"\ncohort_waiting_requests 0.0\n" in asyncio.run(answered("/metrics"))


def test_a_data_set_that_grows_is_read_again_and_a_kill_is_survived(data, run, tmp_path):
    grows = tmp_path / "grows"
    shutil.copytree(data, grows)
    server = Served(run, grows, tmp_path)
    before = server.scores(**NEW)
    status, _ = server.ask({"nodes": [NODES]})
    assert status == 400
    np.save(tmp_path / "x.npy", np.float32(NEW["new_nodes"][0]["x"]))
    np.save(tmp_path / "edges.npy", np.array([NEW["new_edges"][0]["source"], NEW["new_edges"][0]["target"]]))
    with ThreadPoolExecutor(1) as pool:
        going_on = pool.submit(asked_until, server, "the data set has changed")
        ran("dataset", "append", grows, "--edges", tmp_path / "edges.npy", "--features", tmp_path / "x.npy")
        wait_until(lambda: "the data set has changed" in server.said, 20, "the change")
        assert going_on.result() == {200}, "no request is dropped"
    assert np.array_equal(server.scores(nodes=NEW["nodes"]), before), "as the request that brought the same"
    assert json.loads(server.ask(None, "/healthz", "GET")[1])["reloads"] == 1
    server.stop(signal.SIGKILL)
    again = Served(run, grows, tmp_path, port=server.port)
    assert np.array_equal(again.scores(nodes=NEW["nodes"]), before)
    again.stop()


@pytest.mark.fresh  # its processes are its own children alone
def test_processes_answer_side_by_side_and_one_that_is_killed_is_replaced(served, data, run, tmp_path):
    server = Served(run, data, tmp_path, "--workers", 2)

    def counts() -> dict[str, float]:
        told = server.ask(None, "/metrics", "GET")[1].decode().splitlines()
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in told if line[0] != "#")}

    def workers() -> list[int]:
        return children_of(server.process.pid)

    try:
        first = wait_until(lambda: len(workers()) == 2 and workers(), 10, "the start of the second one")
        expected = served.scores(**NEW)
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda _: server.scores(**NEW), range(20)))
        assert all(np.array_equal(each, expected) for each in found)
        os.kill(first[0], signal.SIGKILL)
        wait_until(lambda: "another takes its place" in server.said, 10, "noticing")
        assert np.array_equal(server.scores(**NEW), expected), "the other one answers"
        assert counts()["cohort_nodes_total"] == 21 * len(NEW["nodes"]), "those of the one that was killed, too"
        assert len(workers()) == 2 and first[1] in workers()
        assert server.said.count("answers requests") == 1
        same = ["--port", server.port, "--token-file", tmp_path / "token"]
        refused(cohort("serve", run, data, *same), 1, f"--port {server.port}: expected an address that is free")
    finally:
        last = workers()
        assert server.stop() == -signal.SIGTERM
    assert not any(map(runs, last))
    again = cohort("serve", run, data, "--workers", 2, "--fanout", "3,3,3", "--port", 0)
    refused(again, 1, "num_neighbors: expected 2 numbers")
    assert again.stderr.count("expected 2 numbers") == 1


@pytest.mark.fresh
def test_ctrl_c_ends_a_service_while_python_starts(data, run, tmp_path):
    log = tmp_path / "log"
    with open(log, "w") as said:
        command = [sys.executable, "-m", "cohort_gnn", "serve", str(run), str(data), "--port", "0"]
        process = subprocess.Popen(command, stdout=said, stderr=said)
    about = Path(f"/proc/{process.pid}")

    def is_ready() -> bool:
        """It is the program, and Python has a handler, or would have one if the signal came now."""
        sets = re.findall(r"Sig(?:Blk|Cgt):\t(\w+)", (about / "status").read_text())
        noted = any(int(numbers, 16) >> signal.SIGINT - 1 & 1 for numbers in sets)
        return noted and b"cohort_gnn.trainer.serve" in (about / "cmdline").read_bytes()

    wait_until(is_ready, SECONDS_TO_START, "the program")
    process.send_signal(signal.SIGINT)
    assert (process.wait(timeout=30), log.read_text()) == (-signal.SIGINT, "")


def test_a_service_that_starts_has_its_address(tmp_path):
    path = tmp_path / "socket"
    [at_path], [at_port] = (serve_workers.listening("127.0.0.1", 0, unix_socket) for unix_socket in (path, None))
    inode = path.stat().st_ino
    with at_path, at_port:
        for port, unix_socket in ((0, path), (at_port.getsockname()[1], None)):
            with pytest.raises(CohortError, match="expected an address that is free"):
                serve_workers.listening("127.0.0.1", port, unix_socket)
    assert path.stat().st_ino == inode
    [again] = serve_workers.listening("127.0.0.1", 0, path)
    again.close()


def test_what_a_killed_service_left_is_removed_by_the_next_one(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left = tmp_path / f"cohort-serve-{os.getuid()}.123-0123abcd.tmp"
    left.mkdir()
    (left / "counter_123.db").write_bytes(b"")
    during = []

    def start_first(self, came: list[int]) -> int:
        during.extend((path.name, path.stat().st_mode & 0o777) for path in tmp_path.iterdir())
        return 7

    monkeypatch.setattr(serve_workers._Workers, "start_first", start_first)
    assert serve_workers.supervise({"sockets": [], "device": "cpu"}, 2) == 7
    ((name, mode),) = during
    assert name != left.name and mode == 0o700 and not list(tmp_path.iterdir())


def test_processes_that_end_again_and_again_end_the_service(monkeypatch, caplog, tmp_path):
    started = []

    def begin(self, announces: bool, ready: int | None = None) -> subprocess.Popen:
        started.append(subprocess.Popen(["false"]))
        return started[-1]

    monkeypatch.setattr(serve_workers._Workers, "_begin", begin)
    workers = serve_workers._Workers({"sockets": []}, str(tmp_path))
    workers.start(2)
    with caplog.at_level("WARNING", "cohort_gnn"):
        assert workers.watch([]) == 1
    assert len(started) == 2 + serve_workers.MOST_SOON
    said = [record.getMessage() for record in caplog.records]
    assert all("ended with status 1: another takes its place" in line for line in said[:-1])
    assert len(said) == serve_workers.MOST_SOON + 1 and said[-1].endswith("the service ends, as it did so soon before")


class Daemon:
    """In place of MPS: its server is told once."""

    ended = started = 0

    def __init__(self):
        self.env, self.knows_server, self.problem = {"CUDA_MPS_PIPE_DIRECTORY": "there"}, False, ""
        Daemon.started += 1

    def remember_server(self) -> None:
        self.knows_server = True

    def died(self) -> str:
        return self.problem

    def terminate_client(self, pid: int) -> None:
        raise AssertionError(f"{pid} ends by itself")

    def stop(self) -> None:
        Daemon.ended += 1


def test_processes_start_anew_with_mps(monkeypatch, caplog, tmp_path):
    commands = ["import os; assert os.environ['CUDA_MPS_PIPE_DIRECTORY'] == 'there'; import time; time.sleep(60)"]
    monkeypatch.setattr(serve_workers, "command_of", lambda job: [sys.executable, "-c", *commands])
    monkeypatch.setattr(serve_workers, "start_mps", Daemon)
    daemon = Daemon()
    workers = serve_workers._Workers({"sockets": []}, str(tmp_path), daemon)
    workers.start(2)
    first, came = workers._processes.copy(), []
    daemon.problem = "the MPS server has ended"
    with ThreadPoolExecutor(1) as pool, caplog.at_level("WARNING", "cohort_gnn"):
        watching = pool.submit(workers.watch, came)
        wait_until(lambda: not set(first) & set(workers._processes), 10, "the start of others")
        came.append(signal.SIGTERM)
        assert watching.result(10) == 0
    assert [process.poll() for process in first + workers._processes] == [-signal.SIGTERM] * 2 + [None] * 2
    workers.end()
    assert (Daemon.started, Daemon.ended) == (2, 2)
    assert sum("the MPS server has ended: all processes start anew" in line for line in caplog.messages) == 1


def test_a_process_without_its_gpu_ends_after_its_answer(data, run, monkeypatch, tmp_path):
    scorer, lost = cohort_gnn.Scorer(run, data), []

    def fails(*_, **__):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(scorer, "score_together", fails)
    for is_lost in (False, True):
        monkeypatch.setattr(scorer, "has_lost_gpu", lambda is_lost=is_lost: is_lost)
        worker = Worker(lambda: scorer, data / "meta.json", 4, lambda: lost.append(True))
        worker.start()
        with pytest.raises(RuntimeError, match="illegal memory access"):
            worker.ask(Request(nodes=[1])).result(20)
        worker.stop()
        for thread in worker._threads:
            thread.join(10)
            assert not thread.is_alive()
        assert lost == [True] * is_lost


LOSES = """
import sys
import torch
import cohort_gnn
scorer = cohort_gnn.Scorer(*sys.argv[1:], device="cuda")
scorer.score([3])
assert not scorer.has_lost_gpu()
try:
    print(torch.zeros(3, device="cuda")[torch.tensor([9], device="cuda")])
except RuntimeError:
    assert scorer.has_lost_gpu()
    print("as expected")
"""


@pytest.mark.gpu
def test_a_scorer_knows_that_its_gpu_is_lost(data, run):
    program = subprocess.run([sys.executable, "-c", LOSES, run, data], capture_output=True, text=True)
    assert "as expected" in program.stdout, program.stderr


@pytest.mark.gpu
@pytest.mark.fresh
def test_processes_share_a_gpu_by_mps_which_may_die(data, run, tmp_path):
    expected = cohort_gnn.Scorer(run, data, device="cuda").score([7, 0]).numpy()
    server = Served(run, data, tmp_path, "--workers", 3, "--device", "cuda")
    try:
        (daemon,) = [pid for pid in children_of(server.process.pid) if "mps" in Path(f"/proc/{pid}/comm").read_text()]
        assert np.array_equal(server.scores(nodes=[7, 0]), expected)
        workers = set(children_of(server.process.pid)) - {daemon}
        os.kill(workers.pop(), signal.SIGKILL)
        wait_until(lambda: "another takes its place" in server.said, 10, "noticing")
        for _ in range(20):
            assert np.array_equal(server.scores(nodes=[7, 0]), expected), "the others go on"
        (mps_server,) = children_of(daemon)
        os.kill(mps_server, signal.SIGKILL)
        wait_until(lambda: "start anew" in server.said, 10, "noticing")
        wait_until(lambda: answers(server), SECONDS_TO_START, "the start of others")
        assert np.array_equal(server.scores(nodes=[7, 0]), expected)
    finally:
        last = children_of(server.process.pid)
        assert server.stop() == -signal.SIGTERM
    wait_until(lambda: not any(map(runs, last)), 10, "the end of MPS")


def answers(server: Served) -> bool:
    try:
        return server.ask({"nodes": [7]})[0] == 200
    except OSError:  # the connection ended with its process, or before
        return False


def children_of(pid: int) -> list[int]:
    return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


def asked_until(server: Served, words: str) -> set[int]:
    statuses, end = set(), time.monotonic() + 20
    while words not in server.said and time.monotonic() < end:
        statuses.add(server.ask({"nodes": [0]})[0])
    return statuses


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--host", "0.0.0.0"], ["--host 0.0.0.0: expected a token or certificates of clients", "--token-file"]),
        (["--tls-certificate", "cert.pem"], ["--tls-certificate, --tls-key: expected both"]),
        (["--tls-client-ca", "ca.pem"], ["--tls-client-ca: expected --tls-certificate"]),
        (["--fanout", "3,3,3"], ["num_neighbors: expected 2 numbers"]),
        (["--token-file", os.devnull], ["at least 16 ASCII characters"]),
        (["--port", 65536], ["--port: expected a number from 0 to 65535, found 65536"]),
        (["--unix-socket", "/nowhere/s"], ["--unix-socket /nowhere/s: expected an address that is free"]),
    ],
)
def test_what_is_not_served(data, run, options, words):
    refused(cohort("serve", run, data, *options), 1, *words)


def certificates(folder: Path) -> None:
    """A CA, and certificates of a server and of a client by it: ca.pem, server.pem, server.key, client.pem, ..."""

    def openssl(*words) -> None:
        subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True, cwd=folder)

    new_key = ["-newkey", "rsa:2048", "-nodes"]
    openssl("req", "-x509", *new_key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=a CA", "-days", 2)
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1")
    for name in ("server", "client"):
        openssl("req", *new_key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        by = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "names", "-days", 2]
        openssl("x509", "-req", "-in", f"{name}.csr", *by, "-out", f"{name}.pem")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl to make certificates")
def test_clients_need_a_certificate_of_the_authority(data, run, tmp_path):
    certificates(tmp_path)
    mine = {"--tls-certificate": "server.pem", "--tls-key": "server.key", "--tls-client-ca": "ca.pem"}
    server = Served(run, data, tmp_path, *itertools.chain(*((name, tmp_path / file) for name, file in mine.items())))
    try:
        context = ssl.create_default_context(cafile=tmp_path / "ca.pem")
        answers = []
        for certified in (False, True):
            if certified:
                context.load_cert_chain(tmp_path / "client.pem", tmp_path / "client.key")
            connection = http.client.HTTPSConnection("127.0.0.1", server.port, timeout=20, context=context)
            try:
                connection.request("GET", "/healthz")
                answers.append(connection.getresponse().status)
            except (ssl.SSLError, ConnectionError):
                answers.append("refused")
            connection.close()
        assert answers == ["refused", 200]
    finally:
        server.stop()


def test_a_unix_socket(data, run, tmp_path):
    path = tmp_path / "s"
    command = [sys.executable, "-m", "cohort_gnn", "serve", str(run), str(data), "--unix-socket", str(path)]
    with open(tmp_path / "log", "w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        wait_until(lambda: str(path) in (tmp_path / "log").read_text(), SECONDS_TO_START, "serving")
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(path))
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            assert b"200 OK" in connection.recv(4096)
        again = cohort("serve", run, data, "--unix-socket", path)
        refused(again, 1, f"--unix-socket {path}: expected an address that is free, found a service that answers there")
        assert path.is_socket() and process.poll() is None
    finally:
        process.terminate()
        process.wait(timeout=20)


def test_connections_beyond_the_limit_of_open_files_are_refused(monkeypatch):
    raised = Mock()
    monkeypatch.setattr("cohort_gnn.launch.run.serve.resource.setrlimit", raised)
    monkeypatch.setattr("cohort_gnn.launch.run.serve.resource.getrlimit", lambda what: (64, 200))
    serve._allow_connections(136)
    assert raised.call_args.args == (resource.RLIMIT_NOFILE, (200, 200))
    with pytest.raises(
        CohortError, match="--max-connections: expected at most 136, as 200 files may be open, found 137"
    ):
        serve._allow_connections(137)
