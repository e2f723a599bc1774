"""NeighborLoader: PyG's loader over a sampler process of its own."""

import contextlib
import functools
import itertools
import json
import os
import subprocess
import warnings
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from cohort.base.errors import CohortError
from cohort.base.programs import POLITE, log_tail, program
from cohort.cache.budget import slot_edge_bytes
from cohort.cache.options import CacheOptions, sampler_members
from cohort.channel.run_folder import RunFolder, meeting_point, rank_folders
from cohort.trainer.batch import Batch, batch_of
from cohort.trainer.cache_arguments import cache_options, with_gpu_memory
from cohort.trainer.loader_arguments import checked_fanout, checked_positive, count_nodes, ids_of, resolve_device
from cohort.trainer.loader_state import checked_position, digest_of
from cohort.trainer.ranks import place_from_environment
from cohort.trainer.sm_partition import divide_gpu
from cohort.trainer.source import BatchSource, wait_for_channel, wait_for_file

OTHER_RANKS_SECONDS = 2.0  # how long the rank that started the sampler waits for the others to be done with it
num_samplers = itertools.count()  # of this process


class NeighborLoader:
    """Yields minibatches of a data set as PyG ``Data``, built and fetched by a sampler process beside this one.

    Args:
        data: folder of the data set (see dataset/FORMAT.md).
        num_neighbors: in-neighbours to draw a node and hop, without replacement; entry 0 is next to the seeds; -1: all.
        batch_size: seeds a batch; the last batch of a pass may be smaller.
        input_nodes: seeds: int64 ids or a bool mask [num_nodes]; None: all nodes. Each node at most once.
        shuffle: a new order each epoch, keyed by (seed, epoch).
        drop_last: leave out a last batch that is smaller.
        device: "cuda", "cuda:N", "cpu", or "auto": a GPU when there is one and this build has CUDA. Several ranks on
            a machine have one each, that of their local rank.
        seed: everything random about the batches; the same seed gives the same batches on every device.
        num_slots: batches that the shared buffer holds.
        topology: where a GPU sampler keeps the graph: "auto", "gpu" or "host".
        compress: where feature rows stay encoded: "none", "cache", "host", "both"; "auto": if the data set is
            prepared "both", or "host" where the cache of each GPU has room for all rows raw; else "none".
        cache_ratio: cache of each GPU as a share of all raw feature bytes, index included: one number, or one a rank;
            "auto": what slots and ``trainer_bytes`` leave.
        cache_bytes: the same in bytes. Neither: no cache.
        cache_policy: what is hot: "plan", "degree", "random"; "none": no cache. "plan" counts what a short run of the
            sampler reads, once for a fanout and batch size (the counts stay beside the data set), with seeds of the
            data set's split "train", whatever `input_nodes` are: which nodes a loader will ask for is not known before.
        trainer_bytes: for "auto": GPU memory that this script, its CUDA context and the sampler's take at their peak.
        order: how a GPU reads host rows of a batch: "address" (ascending) or "asis".
        reuse: a GPU copies rows that batches before left in the shared buffer, instead of fetching them again. Only for
            scripts that never change ``batch.x`` in place (``batch.clone()`` may be changed).
        edge_ids: batches have ``e_id`` int64 [num_edges], in the order of ``edge_index``: the place of each edge in the
            data set's ``indices``, which is its column in ``cohort.dataset.open(data).to_pyg().edge_index``.
        edge_weights: batches have ``edge_weight`` float32 [num_edges], of a data set whose edges have weights.
        sampler_sms: the first so many SMs of the GPU are the sampler's, and PyTorch's current stream becomes one of the
            others, so that neither disturbs the other. 0: all are shared.
        cliques: GPUs that read each other's memory: "auto" (as the machine says), "none", "all", "2x4", "3+5".
        limit_seconds: how long the sampler may stay in one stage before it counts as hung.

    Each batch has ``x, edge_index, indptr, y, batch_size, n_id, input_id, num_sampled_nodes, num_sampled_edges``, nodes
    in PyG's order (seeds first, then by hop). ``x``, ``edge_index`` and ``indptr`` are views of shared memory: see
    ``Batch``, also for what options add.

    Under torchrun and ``cohort run --gpus 0,1`` local rank 0 starts one sampler for all ranks of its machine, and every
    rank must make the same loaders. Batch b of a pass is for rank b mod WORLD_SIZE. All ranks get the same number of
    batches: where a pass has too few, the last one of some has no seeds; ``drop_last`` leaves out such a last step.
    Weight each rank's loss by its share of the seeds.

    ``state_dict()`` and ``load_state_dict()`` take up an epoch in its middle.

    Raises:
        CohortError: bad data, arguments or devices; the sampler's end, with its last stage and log.
    """

    def __init__(
        self,
        data: str | os.PathLike,
        num_neighbors: Sequence[int],
        batch_size: int = 1,
        input_nodes=None,
        shuffle: bool = False,
        *,
        drop_last: bool = False,
        device: str | torch.device = "auto",
        seed: int = 0,
        num_slots: int = 3,
        topology: str = "auto",
        compress: str = "auto",
        cache_ratio: float | Sequence[float] | str | None = None,
        cache_bytes: int | Sequence[int] | None = None,
        cache_policy: str = "plan",
        trainer_bytes: int | None = None,
        order: str = "address",
        reuse: bool = False,
        edge_ids: bool = False,
        edge_weights: bool = False,
        sampler_sms: int = 0,
        cliques: str = "auto",
        limit_seconds: float = 600.0,
        _sampler: "_Sampler | None" = None,
        _debug: dict | None = None,
    ):
        self.num_neighbors = checked_fanout(num_neighbors)
        self.batch_size = checked_positive("batch_size", batch_size)
        self.shuffle = shuffle
        self.drop_last = drop_last
        self.epoch = 0  # epochs begun so far; set it to repeat or skip epochs
        self._under_way: list[int] | None = None  # epoch of the iteration begun last, batches yielded; None: it is over
        self._loaded: list[int] | None = None  # the same of a state, with which the next iteration begins
        if _sampler is None:
            options = {"topology": topology, "compress": compress, "order": order, "num_slots": num_slots, "seed": seed}
            options |= {"reuse": reuse, "edge_ids": bool(edge_ids), "edge_weights": bool(edge_weights)}
            cache = cache_options(cache_ratio, cache_bytes, cache_policy, cliques, trainer_bytes)
            cache = replace(cache, slot_edge_bytes=slot_edge_bytes(edge_ids, edge_weights))
            _sampler = _Sampler(
                Path(data), device, options | (_debug or {}), cache, self.num_neighbors, self.batch_size, limit_seconds
            )
            if sampler_sms:
                _sampler.divide_gpu(sampler_sms)
        self._sampler = _sampler
        self._ids = ids_of(input_nodes, self._sampler.num_nodes)
        self._seed_set = self._sampler.source.add_seeds(self._ids)

    def with_nodes(self, input_nodes, *, shuffle: bool = False, num_neighbors=None, batch_size=None):
        """A second loader over other seeds (validation, test) on the same sampler; iterate one of them at a time."""
        self._sampler.require_open()
        return NeighborLoader(
            self._sampler.data,
            num_neighbors or self.num_neighbors,
            batch_size or self.batch_size,
            input_nodes,
            shuffle,
            _sampler=self._sampler,
        )

    @property
    def device(self) -> torch.device:
        """Where batches are."""
        return self._sampler.source.device

    def __len__(self) -> int:
        full, rest = divmod(len(self._ids), self.batch_size)
        num_ranks = self._sampler.place.size
        return full // num_ranks if self.drop_last else -(-(full + (rest > 0)) // num_ranks)

    def __iter__(self) -> Iterator[Batch]:
        self._sampler.require_open()
        epoch, self.epoch = self.epoch, self.epoch + 1
        position = self._loaded if self._loaded and self._loaded[0] == epoch else [epoch, 0]
        self._under_way, self._loaded = position, None
        source, done = self._sampler.source, position[1]
        try:
            which = source.request(self._seed_set, self.num_neighbors, self.batch_size, epoch, self.shuffle, done)
            # No local name for the slot: it would be held.
            yield from map(functools.partial(_counted, position), source.slots(which, len(self) - done))
        except CohortError as error:
            raise self._sampler.explain(error) from None
        if self._under_way is position:
            self._under_way = None

    def state_dict(self) -> dict:
        """Where the loader is, in numbers and text: after the batch yielded last, or at the begin of the next epoch.

        With ``load_state_dict``, the convention of torch.utils.data's stateful loaders: keep it in your checkpoint
        beside the model. Every rank's loader has the same.
        """
        epoch, step = self.epoch, 0
        if self._loaded and self._loaded[0] == self.epoch:
            epoch, step = self._loaded
        elif self._under_way and self._under_way[0] == self.epoch - 1:
            epoch, step = self._under_way
        return self._identity() | {"epoch": epoch, "step": step}

    def load_state_dict(self, state: dict) -> None:
        """The next iteration yields what was left of the epoch in ``state``; batches before it are not sampled again.

        Raises:
            CohortError: the state is that of a loader of other batches.
        """
        self._loaded = checked_position(state, self._identity(), len(self))
        self.epoch, self._under_way = self._loaded[0], None

    def _identity(self) -> dict:
        """What the batches follow from, but for the data set itself."""
        return {
            "seed": int(self._sampler.seed),
            "num_ranks": self._sampler.place.size,
            "num_neighbors": self.num_neighbors,
            "batch_size": self.batch_size,
            "shuffle": bool(self.shuffle),
            "drop_last": bool(self.drop_last),
            "input_nodes": self._digest,
        }

    @functools.cached_property
    def _digest(self) -> str:
        return digest_of(self._ids)

    def close(self) -> None:
        """Ends the sampler. Batches still referenced stay valid."""
        self._sampler.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def _counted(position: list[int], slot) -> Batch:
    """The slot's batch; counts it in ``position``, [epoch, batches]."""
    position[1] += 1
    return batch_of(slot)


class _Sampler:
    """A sampler process, this rank's channel to it, and its end.

    With several ranks on a machine the first one starts it and the others find it.
    """

    def __init__(
        self, data: Path, device, options: dict, cache: CacheOptions, fanout: list[int], batch_size: int, limit_seconds
    ):
        self.data = data.absolute()
        self.num_nodes = count_nodes(self.data)
        self.place = place_from_environment()
        self.process = None
        self.seed = options["seed"]
        kind, gpu = resolve_device(device, self.place)
        self._cleanup = contextlib.ExitStack()
        self._finalizer = weakref.finalize(self, _clean_up, os.getpid(), self._cleanup)
        meeting = meeting_point(next(num_samplers)) if self.place.local_size > 1 else None
        try:
            if self.place.local_rank == 0:
                if kind == "cuda":
                    _warn_without_mps()
                gpus = [gpu] if meeting is None else list(range(self.place.local_size))
                options = {"device": kind, "gpus": gpus} | options
                if kind == "cuda" and cache.ratios == "auto":
                    cache = with_gpu_memory(cache, gpus)
                    options["topology"] = "host" if options["topology"] == "auto" else options["topology"]
                num_slots, num_ranks = options["num_slots"], self.place.local_size
                options |= sampler_members(cache, self.data, fanout, batch_size, num_slots, num_ranks, kind == "cuda")
                self.run_folder = self._start(options, meeting)
            else:
                self.run_folder = _find(meeting, limit_seconds)
            folders = rank_folders(self.run_folder, self.place.local_size)
            folder = folders[self.place.local_rank]
            wait_for_channel(folder, self.check)
            self.source = BatchSource(folder, limit_seconds, self.place.rank, self.place.size)
            if meeting is not None:
                self._cleanup.callback(self.source.leave)
                self._await_others(folders, limit_seconds)
                if self.place.local_rank == 0:
                    meeting.unlink()
        except BaseException:
            self.close()
            raise

    def _start(self, options: dict, meeting: Path | None) -> Path:
        """Starts the process; returns the run's folder."""
        command = program("cohort-sampler")
        folder = RunFolder()
        self.log = folder.path / "sampler.log"
        run = {
            "dataset": str(self.data),
            "channel": str(folder.path),
            "num_ranks": self.place.local_size,
            "owner_pid": os.getpid(),
        }
        run_json = folder.path / "run.json"
        run_json.write_text(json.dumps({"sampler": run | options}, indent=2))
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [command, str(run_json)],
                env=POLITE | os.environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=() if meeting is None else (folder.lock,),  # it may outlive this rank
            )
        self._cleanup.callback(_end, self.process, folder, meeting is not None)
        if meeting is not None:
            folder.link(meeting)
            self._cleanup.callback(meeting.unlink, missing_ok=True)
        return folder.path

    def divide_gpu(self, sampler_sms: int) -> None:
        """Gives the sampler SMs of its own; PyTorch's current stream becomes one of the others."""
        try:
            if self.source.device.type != "cuda":
                raise CohortError("sampler_sms", "a GPU", str(self.source.device), "leave it out")
            divide_gpu(self.source, checked_positive("sampler_sms", sampler_sms))
        except BaseException:
            self.close()
            raise

    def _await_others(self, folders: list[Path], limit_seconds: float) -> None:
        """Says that this rank is here; the first waits for all, so that none is late when it has done its work."""
        (folders[self.place.local_rank] / "attached").touch()
        for rank, folder in enumerate(folders if self.place.local_rank == 0 else []):
            hint = "every rank must make the same loaders"
            late = CohortError(f"local rank {rank}", f"its loader within {limit_seconds:.0f} s", "none", hint)
            wait_for_file(folder / "attached", self.check, limit_seconds, late)

    def check(self) -> None:
        """Raises when the process has ended."""
        if self.process is None:
            if not self.run_folder.exists():
                hint = "the first rank of this machine, which started it, says why"
                raise CohortError("the sampler", "a running process", "it has ended", hint)
        elif self.process.poll() is not None:
            raise CohortError(
                "the sampler",
                "a running process",
                f"it ended with exit code {self.process.returncode}:\n{log_tail(self.log)}",
            )

    def require_open(self) -> None:
        """Raises when close() was called."""
        if not self._finalizer.alive:
            raise CohortError("the loader", "one that runs", "it was closed", "make another, or close() later")

    def explain(self, error: CohortError) -> CohortError:
        """The error, with the sampler's log when the sampler has ended."""
        if self.process is None or self.process.poll() is None:
            return error
        return CohortError.from_text(f"{error}\nsampler's log:\n{log_tail(self.log)}")

    def close(self) -> None:
        self._finalizer()


def _warn_without_mps() -> None:
    """Says what it costs when this process and its sampler cannot use the GPU at the same time."""
    folder = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"))
    if not (folder / "control").exists():
        warnings.warn(
            "no MPS daemon: this script and its sampler will be time-sliced on the GPU, and wait for each other;"
            " start the script with: cohort run script.py",
            stacklevel=4,
        )


def _find(meeting: Path, limit_seconds: float) -> Path:
    """The run's folder that the first rank of this machine has made."""
    hint = "all ranks of a machine must have one parent process and make the same loaders in the same order"
    found = f"no {meeting} after {limit_seconds:.0f} s"
    late = CohortError("LOCAL_RANK", "a sampler that local rank 0 starts", found, hint)
    wait_for_file(meeting, lambda: None, limit_seconds, late)
    return meeting.resolve()


def _clean_up(owner: int, cleanup: contextlib.ExitStack) -> None:
    """A fork of the owner leaves the sampler alone."""
    if os.getpid() == owner:
        cleanup.close()


def _end(process, folder: RunFolder, shared: bool) -> None:
    """Ends a sampler within seconds: asks first. One that other ranks still need ends by itself after them."""
    if shared:
        (folder.path / "left").touch()  # if it runs on, it removes the folder
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=OTHER_RANKS_SECONDS)
        if process.poll() is None:
            return
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(timeout=5)
        except Exception:  # noqa: BLE001 (whatever interrupts the wait, the process must not stay)
            process.kill()
            process.wait()
    folder.remove()
