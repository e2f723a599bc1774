"""``cohort.train``: the command ``cohort train`` from Python."""

import argparse
import json
import os
import threading
from pathlib import Path
from typing import Any

from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.log import shown
from cohort_gnn.base.spelling import nearest
from cohort_gnn.dataset import StoredGraph
from cohort_gnn.launch.run.stopping import handlers_kept
from cohort_gnn.launch.run.supervise import begun, trainer_alone
from cohort_gnn.launch.run.train import train_command as command
from cohort_gnn.spec import files
from cohort_gnn.spec.options import options_of
from cohort_gnn.spec.run import RunSpec
from cohort_gnn.spec.types import checked, checked_arguments


@checked_arguments
def train(
    data: str | os.PathLike | StoredGraph,
    out: str | os.PathLike,
    *,
    overwrite: bool = False,
    resume: bool = False,
    import_to: str | os.PathLike | None = None,
    as_proposed: bool = False,
    **options: Any,
) -> dict[str, Any]:
    """Trains like ``cohort train``, in separate processes, and returns the content of RUN/summary.json.

    Examples:
        >>> summary = cohort.train("data/first", "runs/first", model="gcn", batch_size=1024, callbacks=["own:Log"])
        >>> summary["test_accuracy"], [epoch["loss"] for epoch in summary["epochs"]]

    Args:
        data: folder of the data set, or what ``cohort.dataset.open()`` returns; or a folder of tables, which is one of
            RelBench or has ``graph.yaml``.
        out: folder for results and logs; ``cohort.load_model(out)`` gives the trained model.
        overwrite: replace the run in ``out``.
        resume: continue the run in ``out``, with its options; of ``options``, ``epochs`` may be larger, and others that
            affect neither batches nor losses may change.
        import_to: folder of the data set that is made of a folder of tables, and taken again while that has the same
            files; default: "data/NAME", with its name.
        as_proposed: of a folder of RelBench without ``graph.yaml``, take what ``cohort dataset describe`` proposes.
        options: the options of ``cohort train --help``, with underscores: ``fanout=[25, 10]``, ``amp=True``. Callbacks
            run in the processes of the trainers: pass the names of classes, ``callbacks=["package.module:Class"]``.

    Raises:
        CohortError: an unknown option or a bad value; bad data; a failed run, whose messages are on standard error and
            in the logs in ``out``.
        KeyboardInterrupt: after Ctrl-C, when the programs have ended; checkpoints are kept.
    """
    if threading.current_thread() is not threading.main_thread():
        raise CohortError("cohort.train", "the main thread, which gets signals", threading.current_thread().name)
    if not isinstance(data, str | os.PathLike | StoredGraph):
        hint = "cohort.from_pyg(data, FOLDER) writes a PyG graph as a data set"
        raise CohortError("cohort.train: data", "the folder of a data set, or a Dataset", type(data).__name__, hint)
    if not isinstance(out, str | os.PathLike):
        raise CohortError("cohort.train: out", "a folder for results and logs", repr(out)[:80])
    known = {option.name: option for option in options_of(RunSpec) if option.name != "out"}
    values = {}
    for name, value in options.items():
        if name not in known:
            meant = nearest(name, known)
            hint = f"did you mean {meant}?" if meant else "options are those of cohort train --help, with underscores"
            raise CohortError(f"cohort.train: {name}", "an option of cohort train", "an unknown one", hint)
        if name == "callbacks" and (isinstance(value, str) or not all(isinstance(entry, str) for entry in value or [])):
            hint = 'callbacks=["package.module:Class"]: they run in the processes of the trainers'
            raise CohortError("cohort.train: callbacks", "names of classes", repr(value)[:80], hint)
        text = os.fspath(value) if isinstance(value, os.PathLike) else value
        values[name] = checked(f"cohort.train: {name}", text, known[name].type)
    folder = data.path if isinstance(data, StoredGraph) else Path(data).expanduser()
    run = Path(out).expanduser()
    kept = None if import_to is None else Path(import_to).expanduser()
    if resume and overwrite:
        raise CohortError("cohort.train", "resume or overwrite", "both", "leave one out")
    paths = {"resume": run} if resume else {"resume": None, "out": run}
    arguments = [repr(str(folder)), repr(str(run)), *(f"{name}={value!r}" for name, value in options.items())]
    call = f"cohort.train({', '.join(arguments)})"
    is_single = not values.get("ranks") and len(values.get("gpus") or ()) < 2
    with handlers_kept(), shown("stderr"), begun(trainer_alone(is_single)) as early:
        about: dict[str, Any] = {"overwrite": overwrite, "as_proposed": as_proposed, "import_to": kept}
        about |= {"command_line": call, "early": early}
        code = command(argparse.Namespace(dataset=folder, **about, **paths, **values))
    if code == 130:
        raise KeyboardInterrupt
    if code:
        hint = f"standard error says why; logs are in {run}"
        raise CohortError("cohort.train", "a run that ends well", f"exit code {code}", hint)
    return json.loads((run / files.SUMMARY).read_text())
