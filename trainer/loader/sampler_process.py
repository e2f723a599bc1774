"""The sampler process of a NeighborLoader: its start, this rank's channel to it, its end."""

import contextlib
import functools
import json
import os
import subprocess
import time
import weakref
from dataclasses import replace
from pathlib import Path

import torch

from cohort_gnn.base.cuda_files import remove_cuda_files
from cohort_gnn.base.errors import CohortError, warn_user
from cohort_gnn.base.files import write_whole
from cohort_gnn.base.programs import end_processes, how_ended, log_tail, program, start_logged
from cohort_gnn.cache.options import cache_members, topology_of, wants_auto_cache
from cohort_gnn.channel.run_folder import RunFolder, meeting_point, rank_folders
from cohort_gnn.dataset import StoredGraph
from cohort_gnn.dataset.digests import digest_of_files
from cohort_gnn.spec.run import SamplerSpec
from cohort_gnn.spec.types import Positive, checked
from cohort_gnn.trainer.loader.arguments import device_of_rank, smallest_gpu
from cohort_gnn.trainer.loader.cores import share_cores
from cohort_gnn.trainer.loader.machine import SAME_LOADERS, demand_same_rank, ranks_here, wait_for_rank
from cohort_gnn.trainer.loader.sm_partition import divide_gpu
from cohort_gnn.trainer.loader.source import BatchSource, wait_for_channel

OTHER_RANKS_SECONDS = 2.0  # how long the rank that started the sampler waits for the others to be done with it


class SamplerProcess:
    """A sampler process, this rank's channel to it, and its end.

    With several ranks on a machine the first one starts it and the others find it. ``cleanup`` comes after its end.
    """

    def __init__(
        self,
        data: StoredGraph,
        device,
        options: dict,
        spec: SamplerSpec,
        limit_seconds: float,
        cleanup: contextlib.ExitStack,
    ):
        self.data, self.types, self.key_of = data.path.absolute(), data.types, data.key_of
        self.edge_order = data.metadata()[1]
        self._node_types = data.node_types
        self._ranks = ranks_here(limit_seconds)
        self.process_rank = self._ranks.process_rank
        self.process: subprocess.Popen | None = None
        self.seed, self.draws = options["seed"], spec.draws
        if spec.seed_order != "shuffle":
            self.draws["seed_order"] = digest_of_files([Path(spec.seed_order)])
        kind, gpu = device_of_rank(device, self.process_rank)
        if kind == "cpu":
            share_cores()
        self._cleanup = cleanup
        self._finalizer = weakref.finalize(self, _clean_up, os.getpid(), self._cleanup)
        self._limit_seconds = limit_seconds
        self._meeting = meeting = meeting_point(self._ranks.name) if self.process_rank.local_size > 1 else None
        try:
            if meeting is None or self.process_rank.local_rank == 0:
                if kind == "cuda":
                    _warn_without_mps()
                gpus = [gpu] if meeting is None else list(range(self.process_rank.local_size))
                options = {"device": kind, "gpus": gpus} | options
                if kind == "cuda" and wants_auto_cache(spec):
                    spec = replace(spec, gpu_memory=smallest_gpu(gpus))
                options["topology"] = topology_of(spec, kind)
                how = {"gpus": gpus, "edge_ids": options["edge_ids"]}
                options |= cache_members(spec, self.data, self.process_rank.local_size, kind == "cuda", **how)
                self.run_folder = self._start(options, meeting)
            else:
                hint = f"{SAME_LOADERS}; without torch.distributed those of a machine have one parent process"
                actual = f"no {meeting} after {limit_seconds:.0f} s"
                late = CohortError("LOCAL_RANK", "a sampler that local rank 0 starts", actual, hint)
                has_ended = functools.partial(self._ranks.has_ended, 0)
                first = self._ranks.ranks[0]
                wait_for_rank(first, meeting.exists, has_ended, lambda: None, limit_seconds, late)
                self.run_folder = meeting.resolve()
            self._folders = rank_folders(self.run_folder, self.process_rank.local_size)
            folder = self._folders[self.process_rank.local_rank]
            wait_for_channel(folder, self.check)
            self.source = BatchSource(folder, limit_seconds, self.process_rank.rank, self.process_rank.size)
            self.rows = self.source.all_rows(self.data)  # which batches name; None: slots have rows
            if meeting is not None:
                self._cleanup.callback(self.source.leave)
        except BaseException:
            self.close()
            raise

    @functools.cached_property
    def node_times(self) -> dict[str, torch.Tensor]:
        """int64 [nodes] of each node type whose nodes have times in the data set, on the device of the batches."""
        times = {name: table.node_times for name, table in self._node_types.items()}
        device = self.source.device
        return {name: torch.tensor(own, device=device) for name, own in times.items() if own is not None}

    def _start(self, options: dict, meeting: Path | None) -> Path:
        """Starts the process; returns the run's folder."""
        command = program("cohort-sampler")
        folder = RunFolder()
        self.log = folder.path / "sampler.log"
        run = {
            "dataset": str(self.data),
            "channel": str(folder.path),
            "num_ranks": self.process_rank.local_size,
            "owner_pid": os.getpid(),
        }
        run_json = folder.path / "run.json"
        members = {name: value for name, value in (run | options).items() if value is not None}
        run_json.write_text(json.dumps({"sampler": members}, indent=2))
        began = time.time()
        outlives = () if meeting is None else (folder.lock,)  # it may outlive this rank
        self.process = start_logged([command, str(run_json)], self.log, pass_fds=outlives)
        self._cleanup.callback(_end, self.process, began, folder, meeting is not None)
        if meeting is not None:
            meeting.symlink_to(folder.path)
            self._cleanup.callback(meeting.unlink, missing_ok=True)
        return folder.path

    def divide_gpu(self, sampler_sms: int) -> None:
        """Gives the sampler SMs of its own; PyTorch's current stream becomes one of the others."""
        if self.source.device.type != "cuda":
            raise CohortError("sampler_sms", "a GPU", str(self.source.device), "leave it out")
        divide_gpu(self.source, checked("sampler_sms", sampler_sms, Positive))

    def demand_same_loader(self, number: int, identity: dict) -> None:
        """Waits until every rank of this machine has made its ``number``-th loader, and compares the loaders: each rank
        writes a description of its own to its channel's folder, and reads those of the others.

        Args:
            identity: what the batches follow from, in numbers and text.

        Raises:
            CohortError: the loaders differ (every rank raises the same error), or one is missing.
        """
        ranks = self._ranks
        files = [folder / f"loader-{number}.json" for folder in self._folders]
        write_whole(files[ranks.process_rank.local_rank], json.dumps(identity))
        for local_rank, file in enumerate(files):
            what = f"its loader within {self._limit_seconds:.0f} s"
            late = CohortError(f"local rank {local_rank}", what, "none", SAME_LOADERS)
            has_ended = functools.partial(ranks.has_ended, local_rank)
            rank = ranks.ranks[local_rank]
            wait_for_rank(rank, file.exists, has_ended, self.check, self._limit_seconds, late)
        identities = [json.loads(file.read_text()) for file in files]
        # All ranks have made this loader, so all have read the files of the one before.
        (files[ranks.process_rank.local_rank].parent / f"loader-{number - 1}.json").unlink(missing_ok=True)
        for name, value in identities[0].items():
            by_rank = dict(zip(ranks.ranks, (rank_identity[name] for rank_identity in identities), strict=True))
            others = {rank: other for rank, other in by_rank.items() if other != value}
            if others and name in ("input_nodes", "input_time"):  # digests, which are not shown
                hint = "pass all of them on every rank: Cohort divides the batches itself"
                actual = f"other ones on rank {', '.join(map(str, others))}"
                raise CohortError(name, "the same on every rank", actual, hint)
            if others:
                others = {ranks.ranks[0]: value} | others
                values = ", ".join(f"{other!r} on rank {rank}" for rank, other in others.items())
                raise CohortError(name, "the same on every rank", values, SAME_LOADERS)
        if self._meeting is not None and self.process_rank.local_rank == 0:
            self._meeting.unlink(missing_ok=True)  # all have found the folder

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
                f"it {how_ended(self.process.returncode)}:\n{log_tail(self.log)}",
            )

    def require_usable(self) -> None:
        """Raises when close() was called, or this process has become another rank."""
        demand_same_rank(self.process_rank)
        if not self._finalizer.alive:
            raise _closed()

    def explain(self, error: CohortError) -> CohortError:
        """The error, with the sampler's log when the sampler has ended; close() has its own."""
        if not self._finalizer.alive:
            return _closed()
        if self.process is None or self.process.poll() is None:
            return error
        return CohortError.from_text(f"{error}\nsampler's log:\n{log_tail(self.log)}")

    def close(self) -> None:
        self._finalizer()

    def __reduce__(self):
        hint = "make a loader in the process that reads it, or keep its state_dict()"
        raise CohortError("copy or pickle of a loader", "a loader in its process", "one to be copied", hint)


def _closed() -> CohortError:
    return CohortError("the loader", "one that runs", "it was closed", "make another, or close() later")


def _warn_without_mps() -> None:
    """Warns that this process and its sampler cannot use the GPU at the same time, and what that costs."""
    folder = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"))
    if not (folder / "control").exists():
        warn_user(
            "no MPS daemon: this script and its sampler will be time-sliced on the GPU, and wait for each other;"
            " start the script with: cohort run script.py",
        )


def _clean_up(owner: int, cleanup: contextlib.ExitStack) -> None:
    """Cleans up in the process that started the sampler; a fork of it does nothing."""
    if os.getpid() == owner:
        cleanup.close()


def _end(process, began: float, folder: RunFolder, shared: bool) -> None:
    """Ends a sampler within seconds: asks first. One that other ranks still need ends by itself after them."""
    if shared:
        (folder.path / "left").touch()  # if it runs on, it removes the folder
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=OTHER_RANKS_SECONDS)
        if process.poll() is None:
            return
    try:
        end_processes([process], 5)
        remove_cuda_files([process.pid], began)
    finally:
        folder.remove()
