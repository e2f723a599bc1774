"""The service: its paths, its limits, and who may ask."""

import asyncio
import hmac
import os
import queue
import time
from collections.abc import Awaitable, Callable

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route

from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.units import format_bytes
from cohort_gnn.base.version import __version__
from cohort_gnn.trainer.serve.bodies import JSON, Request, answer_of, openapi, request_of
from cohort_gnn.trainer.serve.worker import Worker

SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)  # of the histogram


class Limits(msgspec.Struct, frozen=True):
    """What a request may take.

    Attributes:
        body_bytes: of its body.
        nodes: that it names or brings.
        body_seconds: in which its body has come.
        answer_seconds: in which it is answered.
        connections: at once.
    """

    body_bytes: int
    nodes: int
    body_seconds: float
    answer_seconds: float
    connections: int


class Refused(Exception):
    """A request that gets no scores: the status of HTTP, and why."""

    def __init__(self, status: int, reason: str):
        super().__init__(reason)
        self.status = status


class Service:
    """Answers over HTTP what a Worker scores.

    Args:
        token: that each request but /healthz must bear; None: nobody is asked for one.
        num_connections: how many there are now.
    """

    def __init__(self, worker: Worker, limits: Limits, token: str | None, num_connections: Callable[[], int]):
        self._worker, self._limits, self._token, self._num_connections = worker, limits, token, num_connections
        self._registry = registry = CollectorRegistry()
        self._answers = Counter("cohort_requests", "Requests by status", ["status"], registry=registry)
        self._nodes = Counter("cohort_nodes", "Nodes that were scored", registry=registry)
        self._seconds = Histogram(
            "cohort_answer_seconds", "From a request's body to its answer", buckets=SECONDS, registry=registry
        )
        self._waiting = Gauge(
            "cohort_waiting_requests", "Requests that wait", registry=registry, multiprocess_mode="livesum"
        )
        self._reloads = Gauge(
            "cohort_reloads", "Times that a changed data set was read", registry=registry, multiprocess_mode="livemax"
        )
        routes = [
            Route("/v1/scores", self._guarded(self._scores), methods=["POST"]),
            Route("/healthz", self._health),
            Route("/metrics", self._guarded(self._metrics)),
            Route("/openapi.json", self._guarded(self._openapi)),
        ]
        self.app = Starlette(routes=routes, exception_handlers={404: self._unknown, 405: self._unknown})

    def _guarded(self, answer: Callable[[HttpRequest], Awaitable[Response]]):
        async def guarded(request: HttpRequest) -> Response:
            try:
                if self._num_connections() > self._limits.connections:
                    raise Refused(503, f"at most {self._limits.connections} connections are served: try again later")
                self._demand_token(request)
                response = await answer(request)
            except Refused as refused:
                response = _error(refused.status, str(refused))
            self._answers.labels(str(response.status_code)).inc()
            return response

        return guarded

    def _demand_token(self, request: HttpRequest) -> None:
        if self._token is None:
            return
        scheme, _, claimed = request.headers.get("authorization", "").partition(" ")
        is_bearer = scheme.lower() == "bearer"  # RFC 9110: in any case
        if not is_bearer or not hmac.compare_digest(claimed.strip().encode(), self._token.encode()):
            raise Refused(401, "Authorization: expected Bearer and the token of this service")

    async def _scores(self, http: HttpRequest) -> Response:
        began = time.monotonic()
        body = await self._body(http)
        try:
            request = request_of(body, http.headers.get("content-type", JSON))
            self._demand_size(request)
            answer = asyncio.wrap_future(self._worker.ask(request))
            self._waiting.set(self._worker.num_waiting)
            rows, class_names = await asyncio.wait_for(answer, self._limits.answer_seconds)
        except Refused:
            raise
        except CohortError as error:
            raise Refused(400, str(error)) from error
        except queue.Full:
            raise Refused(503, "too many requests wait: try again later") from None
        except TimeoutError:
            raise Refused(503, f"no answer within {self._limits.answer_seconds:g} s: try again later") from None
        except Exception:
            return _error(500, "the service failed to score this request: see its log")
        finally:  # also of a request that was refused
            self._waiting.set(self._worker.num_waiting)
        content, kind = answer_of(request, rows, class_names, http.headers.get("accept", ""))
        self._reloads.set(self._worker.reloads)
        self._nodes.inc(len(request.nodes))
        self._seconds.observe(time.monotonic() - began)
        return Response(content, media_type=kind)

    async def _body(self, http: HttpRequest) -> bytes:
        most, length = self._limits.body_bytes, http.headers.get("content-length", "0")
        if length.isdecimal() and int(length) > most:
            raise Refused(413, f"the body: expected at most {format_bytes(most)}, found {format_bytes(int(length))}")
        body = bytearray()

        async def read() -> None:
            async for part in http.stream():
                body.extend(part)
                if len(body) > most:
                    raise Refused(413, f"the body: expected at most {format_bytes(most)}, found more")

        try:
            await asyncio.wait_for(read(), self._limits.body_seconds)
        except TimeoutError:
            raise Refused(408, f"the body: expected within {self._limits.body_seconds:g} s") from None
        except ClientDisconnect:
            raise Refused(400, "the body: expected all of it, found a connection that ended") from None
        return bytes(body)

    def _demand_size(self, request: Request) -> None:
        if not request.nodes:
            raise CohortError("nodes", "the id of a node at least", "none")
        if request.num_nodes > self._limits.nodes:
            raise Refused(
                413, f"nodes: expected at most {self._limits.nodes:,} in a request, found {request.num_nodes:,}"
            )
        outputs = ("rows", "targets", "hidden") if self._worker.scorer.predicts_links else ("scores", "hidden")
        if request.output not in outputs:
            raise CohortError("output", f"{' or '.join(outputs)}, of this run", request.output)
        has_best = request.output in ("scores", "targets")
        if request.output == "targets" and request.top_k is None or request.top_k is not None and not has_best:
            raise CohortError("top_k", "a number for targets, or for scores", f"{request.top_k} for {request.output}")
        if request.top_k is not None and not 0 < request.top_k <= self._limits.nodes:
            raise CohortError("top_k", f"a number from 1 to {self._limits.nodes}", str(request.top_k))

    async def _health(self, _: HttpRequest) -> Response:
        health = {"status": "ok", "data": str(self._worker.scorer.data.path), "reloads": self._worker.reloads}
        health |= {"problem": self._worker.problem} if self._worker.problem else {}
        return Response(msgspec.json.encode(health), media_type=JSON)

    async def _metrics(self, _: HttpRequest) -> Response:
        self._reloads.set(self._worker.reloads)
        registry = self._registry
        if "PROMETHEUS_MULTIPROC_DIR" in os.environ:  # of the other processes of the service, too
            registry = CollectorRegistry()
            MultiProcessCollector(registry)
        return Response(generate_latest(registry), media_type="text/plain; version=0.0.4")

    async def _openapi(self, _: HttpRequest) -> Response:
        return Response(openapi(__version__), media_type=JSON)

    async def _unknown(self, request: HttpRequest, error) -> Response:
        known = "POST /v1/scores, GET /healthz, /metrics and /openapi.json"
        return _error(error.status_code, f"expected {known}, found {request.method} {request.url.path[:80]}")


def _error(status: int, reason: str) -> Response:
    return Response(msgspec.json.encode({"error": reason}), status, media_type=JSON)
