"""The options of a run: each stands here once.

The command line (launch/options/parser.py), --config, run.json, what a resumed run may change, whether a checkpoint is
that of a run, and the key of the trainer's measured memory all follow from these fields.
"""

from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

from msgspec import Meta

from cohort_gnn.base.errors import CohortError
from cohort_gnn.spec import types
from cohort_gnn.spec.graph import GraphTypes
from cohort_gnn.spec.options import Affects, option

NOTHING, BATCHES, LOSS, MEMORY, COURSE = Affects.NOTHING, Affects.BATCHES, Affects.LOSS, Affects.MEMORY, Affects.COURSE
TYPED = ("rsage", "rgcn", "rgat", "hgt")  # models of graphs of several node types
BUILT_IN = "|".join(("sage", "gcn", "gat", *TYPED))
MODEL_TEXT = f"{BUILT_IN.replace('|', ' or ')} or package.module:Class"
Model = Annotated[str, Meta(pattern=rf"^({BUILT_IN}|[A-Za-z_][\w.]*:[A-Za-z_]\w*)$", description=MODEL_TEXT)]


@dataclass(kw_only=True)
class SamplerSpec:
    """Options of every command that runs a sampler."""

    fanout: types.Fanout = option(
        [25, 10],
        "neighbours per hop, starting at the seeds; the model has one layer per entry; -1: all neighbours",
        "Sampling",
        BATCHES | MEMORY,
        metavar="N[,N...]",
    )
    weight_attr: types.WeightAttr | None = option(
        None,
        "draw neighbours with probability proportional to the edge weights of the data set",
        "Sampling",
        BATCHES | MEMORY,
        metavar="edge_weight",
    )
    batch_size: types.Positive = option(1024, "seeds per batch of each trainer", "Sampling", BATCHES | MEMORY)
    slots: types.Slots = option(4, "number of batches that the shared buffer holds", "Sampling")
    seed: types.Seed = option(
        0, "seed of all random numbers; the same seed gives the same batches", "Sampling", BATCHES | LOSS
    )
    topology: types.Topology = option(
        "auto",
        "where the GPU reads the graph: gpu: the whole graph in GPU memory; host: in host memory, except cached"
        " lists; auto: gpu if the graph takes at most half of the memory that the cache leaves",
        "Cache",
        MEMORY,
    )
    compress: types.Compress = option(
        "auto",
        "where feature rows stay encoded; auto: for a prepared data set in host memory, and in the cache unless the"
        " cache of each GPU has room for all raw rows; otherwise nowhere",
        "Cache",
        MEMORY,
    )
    reuse: bool = option(
        True,
        "take feature rows that earlier batches left in GPU memory instead of fetching the rows again (GPU)",
        "Cache",
        MEMORY,
    )
    cache_ratio: types.Ratios | Literal["auto"] | None = option(
        None,
        "cache of each GPU as a share of all raw feature bytes, index included; auto: all memory that slots and trainer"
        " leave free",
        "Cache",
        metavar="R[,R...]|auto",
    )
    cache_bytes: types.ByteCounts | None = option(
        None, "cache of each GPU in bytes, for example 20GB", "Cache", metavar="B[,B...]"
    )
    cache_policy: types.CachePolicy = option(
        "plan",
        "rows to cache: plan: the rows that a short run of the sampler reads most; degree, random: baselines for"
        " comparison; none: no cache",
        "Cache",
    )
    host_bytes: types.Bytes | None = option(
        None,
        "host memory for rows of a prepared data set, index included; further rows stay on disk (default: no limit)",
        "Cache",
        metavar="B",
    )
    ahead: types.Positive = option(8, "batches that are read from the disk at once, if slots are free", "Cache")
    cliques: str = option(
        "auto",
        "which GPUs read each other's memory and share a cache (auto: detected from the machine)",
        "Cache",
        metavar="none|all|2x4|3+5|auto",
    )
    device: types.Device = option("auto", "auto: a GPU if the machine has one", "Devices", LOSS)
    gpus: types.Gpus | None = option(
        None,
        "numbers of the visible GPUs to use, with one trainer each, for example 0,1 (default 0)",
        "Devices",
        metavar="N[,N...]",
        aliases=("--gpu",),
    )
    ranks: types.Positive | None = option(
        None, "number of trainers on the CPU (default 1); with --gpus, each GPU has one trainer", "Devices"
    )
    mps: bool = option(
        True, "share the GPU between sampler and trainer through MPS; without MPS, the two take turns", "Devices"
    )
    order: types.Order = option("address", "order in which a GPU reads the host-memory rows of a batch")
    fetch_sms: types.Positive | None = option(
        None, "GPU: number of SMs that fetch rows (default: chosen by the sampler)"
    )
    presample_batches: types.Positive = option(
        200, "maximum number of batches of the short run that counts reads for --cache-policy plan; two epochs at most"
    )
    bandwidth: types.ThreeNumbers | None = option(
        None,
        "GB/s at which a GPU reads its own, a peer's and host memory, for the planner (default: measured once on the"
        " GPUs of this machine; without a GPU 1500,360,51)",
        metavar="LOCAL,PEER,HOST",
    )
    line_ns: types.ThreeNumbers = option(
        (0.0, 0.0, 0.0),
        "added latency in ns for each 128-byte line read from LOCAL, PEER, HOST memory, for the planner",
        metavar="LOCAL,PEER,HOST",
    )
    gpu_memory: types.Bytes | None = option(
        None, "memory of each GPU, for the planner (default: memory of the smallest visible GPU)"
    )
    trainer_bytes: types.Bytes | None = option(
        None,
        "memory that a GPU needs in addition to slots and cache, for --cache-ratio auto (default: measured once by a"
        " short run)",
    )
    debug_poison_slots: bool = option(False)  # for tests of Cohort itself
    debug_slow_fetch_us: int | None = option(None)
    debug_illegal_access_batch: int | None = option(None)
    edge_weights: bool = option(
        False,
        "use the edge weights of the data set, in GCN or a model of your own that takes edge_weight",
        "Model",
        LOSS | MEMORY,
    )
    edge_features: bool = option(
        True,
        "use edge features of the data set, if it has some, in GAT, R-GAT and models of your own that take edge_attr",
        "Model",
        BATCHES | LOSS | MEMORY,
    )
    partition: bool = option(
        False,
        "train each clique of GPUs on the seeds of its own part, and cache for these seeds; cohort dataset partition"
        " DIR --parts K makes the parts for K cliques; batches then depend on the cliques",
        "Training",
        BATCHES,
    )


@dataclass(kw_only=True)
class RunSpec(SamplerSpec):
    """Options of every command that trains."""

    model: Model = option(
        "sage",
        "SAGE (mean), GCN or GAT; for several node types R-SAGE, R-GCN, R-GAT or HGT; or a class of your own, called"
        " with the arguments in_channels, hidden_channels, num_layers, out_channels and dropout, as PyG's models are;"
        " the model has one layer per entry of --fanout",
        "Model",
        LOSS | MEMORY,
        metavar=f"{BUILT_IN}|package.module:Class",
    )
    hidden: types.Positive = option(256, "features of each hidden layer", "Model", LOSS | MEMORY)
    dropout: types.Probability = option(0.5, "probability that training drops a hidden feature", "Model", LOSS | MEMORY)
    norm: Literal["none", "layer", "batch"] = option(
        "none",
        "normalise hidden layers before the activation: layer: each row; batch, for several node types: each column"
        " over the rows of a node type",
        "Model",
        LOSS | MEMORY,
    )
    residual: bool = option(
        False, "add the input of each hidden layer, except the first, to its output", "Model", LOSS | MEMORY
    )
    heads: types.Positive = option(
        4, "attention heads of gat, rgat and hgt; must divide --hidden", "Model", LOSS | MEMORY
    )
    featureless: Literal["zero", "embed"] = option(
        "zero",
        "several node types: what a type without features sends in the first layer; zero: nothing; embed: learned"
        " rows of --hidden columns",
        "Model",
        LOSS | MEMORY,
    )
    layers: Literal["cohort", "pyg"] = option(
        "cohort", "implementation of the layers: Cohort's fused ones or PyG's", "Model", LOSS | MEMORY
    )
    task: Literal["node", "link"] | None = option(
        None,
        "node: learn the labels of nodes; link: learn which pairs of nodes have an edge (default: link for a data set"
        " with held-out links, see cohort dataset split-links; otherwise node)",
        "Training",
        BATCHES | LOSS | MEMORY,
        metavar="node|link",
    )
    relation: str | None = option(
        None,
        "link, several node types: the relation to predict, as its name or source:name:target (default: the relation"
        " with held-out links, otherwise the only relation that is not the reverse of another)",
        "Training",
        BATCHES | LOSS | MEMORY,
        metavar="NAME",
    )
    decoder: Literal["dot", "distmult", "mlp"] = option(
        "dot",
        "link: how the rows of two nodes give a score: dot: dot product; distmult: dot product with a learned weight"
        " for each column; mlp: two layers on the elementwise product",
        "Model",
        LOSS | MEMORY,
    )
    loss: Literal["bce", "softmax", "margin"] = option(
        "bce",
        "link: bce: binary cross entropy of edges and negatives; softmax: cross entropy of the edge among its"
        " negatives; margin: hinge loss, with a margin of 1 between the edge and each negative",
        "Training",
        LOSS | MEMORY,
    )
    negatives: types.Positive = option(
        1, "link: number of negatives for each edge of a batch", "Training", BATCHES | LOSS | MEMORY
    )
    negatives_from: types.NegativesFrom = option(
        "uniform",
        "link: targets of negatives: uniform: any nodes; degree: nodes in proportion to in-degree^0.75; degree:P: in"
        " proportion to in-degree^P; batch: targets of other edges of the batch, for which no nodes are sampled",
        "Training",
        BATCHES | LOSS | MEMORY,
        metavar="uniform|degree[:P]|batch",
    )
    epochs: types.Positive = option(10, "passes over the training nodes or edges", "Training", COURSE)
    coarse_epochs: types.NotNegative = option(
        0,
        "data set prepared with --codec planes: read plane A alone, features with a bounded relative error, in the"
        " first K epochs of training; validation and test always read exact features",
        "Training",
        LOSS,
        metavar="K",
    )
    lr: types.AboveZero = option(0.003, "learning rate of Adam", "Training", LOSS)
    weight_decay: types.AtLeastZero = option(0.0, "weight decay of Adam", "Training", LOSS)
    lr_schedule: Literal["constant", "cosine", "linear"] = option(
        "constant", "learning rate: constant, or falling each epoch and reaching 0 after the last one", "Training", LOSS
    )
    clip_norm: types.AboveZero | None = option(
        None,
        "scale gradients down to this norm over all parameters if their norm is larger",
        "Training",
        LOSS,
        metavar="NORM",
    )
    patience: types.Positive | None = option(
        None,
        "end the run after this number of epochs without a better validation score",
        "Training",
        COURSE,
        metavar="EPOCHS",
    )
    amp: bool = option(
        False, "train and evaluate in bfloat16 where bfloat16 is safe (autocast)", "Training", LOSS | MEMORY
    )
    eval_fanout: types.Fanout | None = option(
        None,
        "neighbours per hop in validation and test (default: the value of --fanout)",
        "Sampling",
        BATCHES | MEMORY,
        metavar="N[,N...]",
    )
    sampler_sms: types.NotNegative = option(
        0,
        "GPU: give the sampler the first N SMs and the trainer the other SMs; 0: both share all SMs",
        "Devices",
        metavar="N",
    )
    machine_seconds: types.AboveZero = option(
        60.0, "several machines: end the run if one machine is silent for this number of seconds", "Devices"
    )
    features: Literal["auto", "replicated", "partitioned"] = option(
        "auto",
        "several machines: replicated: each has all feature rows; partitioned: each keeps a part of the encoded rows"
        " and asks others for the rest; auto: partitioned if a machine has too little host memory",
        "Devices",
    )
    out: Path | None = option(None, "folder for results and logs (default runs/NAME-TIME)", "Output", metavar="RUN")
    quiet: bool = option(False, "print no progress bar and no table", "Output")
    tensorboard: bool = option(False, "write scalars of each epoch to RUN/tensorboard", "Output")
    profile: bool = option(
        False,
        "record the first two epochs in RUN/timeline.json, including kernels, instead of 40 steps; slows the run down",
        "Output",
        COURSE,
    )
    checkpoint_every: types.Positive | None = option(
        None,
        "write RUN/checkpoint.pt every N steps (default: at the end of an epoch, at most once a second)",
        "Output",
        COURSE,
        metavar="N",
    )
    callbacks: list[types.Named] | None = option(
        None,
        "classes with hooks that the trainers call, for example loggers",
        affects=COURSE,
        metavar="package.module:Class[,...]",
    )
    matmul_precision: Literal["highest", "high"] = option(
        "highest",
        "GPU: precision of float32 products; high: tensor cores round the factors to the 10 bits of TF32",
        affects=LOSS,
    )
    cuda_graphs: bool = option(
        True,
        "GPU: capture steps once and replay the captured steps, which takes much less CPU time",
        affects=LOSS | MEMORY,
    )

    @property
    def has_own_model(self) -> bool:
        """Whether --model names a class of the user's."""
        return ":" in self.model

    @property
    def hops_of_evaluation(self) -> list[int]:
        """Fanout of validation and test."""
        return self.eval_fanout or self.fanout


@dataclass(kw_only=True)
class TrainerSpec(RunSpec):
    """The member "trainer" of run.json: the options, and what follows from data set and machine.

    Attributes:
        targets: the data set's task, or "link"; see trainer/models/targets.py.
        types: of a graph that has several node types.
        edge_dim: features of each edge that batches have, of several edge types the most; 0: none.
        parts: ranks train on seeds of parts of their own: {"parts": a file, "cliques": ranks of each}.
        max_batches: of each pass; for a run that is only to be measured, and makes no checkpoints.
        coarse_error: the relative error bound of features in coarse epochs; 0: there are none.
    """

    num_classes: int
    feature_dim: int
    targets: str = "classification"
    types: GraphTypes | None = None
    edge_dim: int = 0
    parts: dict | None = None
    max_batches: int | None = None
    coarse_error: float = 0.0


def as_json(spec: SamplerSpec) -> dict[str, Any]:
    """A spec as run.json has it; paths are absolute text."""
    return {field.name: _of_json(getattr(spec, field.name)) for field in fields(spec)}


def _of_json(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value.absolute())
    if isinstance(value, GraphTypes):
        return asdict(value)
    return list(value) if isinstance(value, tuple) else value


def from_json(members: Any, of: type, place: str) -> Any:
    """The spec that `as_json` has written, of class `of`.

    Raises:
        CohortError: a member is missing, is no value of its type, or is none that this version knows.
    """
    if not isinstance(members, dict):
        raise CohortError(place, "options by name", repr(members)[:80])
    hints = get_type_hints(of, include_extras=True)
    unknown = sorted(members.keys() - hints.keys())
    if unknown:
        hint = "another version wrote it: use that version, or train again"
        raise CohortError(place, "options that this version knows", ", ".join(unknown), hint)
    values = {
        field.name: types.checked(f"{place}: {field.name}", members[field.name], hints[field.name])
        for field in fields(of)
        if field.name in members
    }
    try:
        return of(**values)
    except TypeError as error:
        raise CohortError(place, f"the members of {of.__name__}", str(error), "another version wrote it") from None
