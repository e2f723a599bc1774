"""The options of a run: each stands here once.

The command line (launch/options/parser.py), --config, run.json, what a resumed run may change, whether a checkpoint is
that of a run, and the key of the trainer's measured memory all follow from these fields.
"""

from dataclasses import asdict, dataclass, fields, replace
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from cohort_gnn.base.errors import CohortError
from cohort_gnn.spec import types
from cohort_gnn.spec.graph import EDGE_TYPE, NODE_TYPE, ONE_OF_EACH, GraphTypes
from cohort_gnn.spec.metrics import MetricName, MetricNames
from cohort_gnn.spec.models import MODELS, ONE_TYPE, OWN_MODEL, SEVERAL_TYPES, ModelKind, listed, models_with
from cohort_gnn.spec.options import Affects, Needs, option, options_of, types_of

NOTHING, BATCHES, LOSS, MEMORY, COURSE = Affects.NOTHING, Affects.BATCHES, Affects.LOSS, Affects.MEMORY, Affects.COURSE
BUILT_IN = "|".join(MODELS)
BUILT_IN_TEXT = " or ".join(MODELS)
BuiltIn = Annotated[str, Meta(pattern=rf"^({BUILT_IN})$", description=BUILT_IN_TEXT, extra={"words": tuple(MODELS)})]
Model = Annotated[
    str,
    Meta(
        pattern=rf"^({BUILT_IN}|[A-Za-z_][\w.]*:[A-Za-z_]\w*)$",
        description=f"{BUILT_IN_TEXT} or package.module:Class",
        extra={"words": tuple(MODELS)},
    ),
]

_model = partial(option, group="Model", affects=LOSS | MEMORY)
_training, _sampling, _cache = (partial(option, group=group) for group in ("Training", "Sampling", "Cache"))
_devices, _output = (partial(option, group=group) for group in ("Devices", "Output"))


def whole_path_of_order(seed_order: str) -> str:
    """``seed_order`` with a file by its absolute path."""
    return seed_order if seed_order == "shuffle" else str(Path(seed_order).expanduser().absolute())


MIX = 0.5  # of seeds from everywhere, where others are in the order of communities


def weights_beside_shares() -> CohortError:
    """Batches cannot have both as ``edge_weight``."""
    hint = "batches have shares of means in place of weights: say edge_weights=False, or no --use-edge-weights"
    return CohortError("importance_sampling", "False, with edge_weights", "True", hint)


@dataclass(kw_only=True)
class SamplerSpec:
    """Options of every command that runs a sampler."""

    fanout: types.Fanout = _sampling(
        [25, 10],
        "neighbours per hop, starting at the seeds; the model has one layer per entry; -1: all neighbours",
        BATCHES | MEMORY,
        metavar="N[,N...]",
    )
    weight_attr: types.WeightAttr | None = _sampling(
        None,
        "draw neighbours with probability proportional to the edge weights of the data set",
        BATCHES | MEMORY,
        metavar="edge_weight",
        for_draws=True,
    )
    weight_strategy: Literal["random", "top"] = _sampling(
        "random",
        "with --weight-attr: random: draw neighbours with probability proportional to the weights; top: take the edges"
        " of greatest weight",
        BATCHES | MEMORY,
        for_draws=True,
    )
    sampling: Literal["neighbor", "labor"] = _sampling(
        "neighbor",
        "neighbor: draw from the neighbours of each node by itself; labor: nodes of a batch agree on the neighbours"
        " that they draw, so that batches have fewer nodes and an epoch fetches fewer rows",
        BATCHES | MEMORY,
        for_draws=True,
    )
    batch_dependency: types.Dependency = _sampling(
        1,
        "with --sampling labor: number of batches for which a node is drawn, or not, alike: later batches find more"
        " rows in GPU memory",
        BATCHES,
        for_draws=True,
    )
    layer_dependency: bool = _sampling(
        False,
        "with --sampling labor: hops of a batch agree on the neighbours that they draw, too, so that batches have fewer"
        " nodes still",
        BATCHES | MEMORY,
        for_draws=True,
    )
    importance_sampling: bool = _sampling(
        False,
        "with --sampling labor, SAGE or a model of your own: draw the neighbours that others draw anyway rather than"
        " others, and weigh edges for that, so that batches have fewer nodes still",
        BATCHES | LOSS | MEMORY,
        for_draws=True,
    )
    seed_order: types.SeedOrder = _sampling(
        "shuffle",
        "shuffle: a batch has seeds from everywhere; FILE.npy, with the community of each node (int32 or int64), for"
        " example the parts of cohort dataset partition: a batch has seeds of few communities, which share neighbours,"
        " in another order each epoch; batches then have fewer nodes, and accuracy may be lower",
        BATCHES | MEMORY,
        metavar="shuffle|FILE.npy",
        for_draws=True,
    )
    seed_mix: types.Part = _sampling(
        MIX,
        "with --seed-order FILE.npy: the share of the seeds of each batch that come from everywhere",
        BATCHES | MEMORY,
        for_draws=True,
    )
    batch_size: types.Positive = _sampling(1024, "seeds per batch of each trainer", BATCHES | MEMORY)
    slots: types.Slots = _sampling(4, "number of batches that the shared buffer holds")
    seed: types.Seed = _sampling(
        0,
        "seed of all random numbers; the same seed gives the same batches",
        BATCHES | LOSS,
        for_sampler=True,
    )
    topology: types.Topology = _cache(
        "auto",
        "where the GPU reads the graph: gpu: the whole graph in GPU memory; host: in host memory, except cached"
        " lists; auto: gpu if the graph takes at most half of the memory that the cache leaves",
        MEMORY,
        needs=Needs.GPU | Needs.CACHE,
    )
    compress: types.Compress = _cache(
        "auto",
        "where feature rows stay encoded; auto: for a prepared data set in host memory, and in the cache unless the"
        " cache of each GPU has room for all raw rows; otherwise nowhere",
        MEMORY,
        for_sampler=True,
    )
    reuse: bool = _cache(
        True,
        "take feature rows that earlier batches left in GPU memory instead of fetching the rows again (GPU)",
        MEMORY,
        needs=Needs.GPU,
    )
    cache_ratio: types.Ratios | Literal["auto"] | None = _cache(
        None,
        "cache of each GPU as a share of all raw feature bytes, index included; auto: all memory that slots and trainer"
        " leave free",
        metavar="R[,R...]|auto",
    )
    cache_bytes: types.ByteCounts | None = _cache(
        None, "cache of each GPU in bytes, for example 20GB", metavar="B[,B...]"
    )
    cache_policy: types.CachePolicy = _cache(
        "plan",
        "rows to cache: plan: the rows that a short run of the sampler reads most; degree, random: baselines for"
        " comparison; none: no cache",
        needs=Needs.CACHE,
    )
    host_bytes: types.Bytes | None = _cache(
        None,
        "host memory for rows of a prepared data set, index included; further rows stay on disk (default: no limit)",
        metavar="B",
    )
    ahead: types.Positive = _cache(
        8, "batches that are read from the disk at once, if slots are free", needs=Needs.FAR_ROWS
    )
    cliques: str = _cache(
        "auto",
        "which GPUs read each other's memory and share a cache (auto: detected from the machine)",
        metavar="none|all|2x4|3+5|auto",
        needs=Needs.CACHE | Needs.PARTS,
    )
    device: types.Device = _devices("auto", "auto: a GPU if the machine has one", LOSS)
    gpus: types.Gpus | None = _devices(
        None,
        "numbers of the visible GPUs to use, with one trainer each, for example 0,1 (default 0)",
        metavar="N[,N...]",
        aliases=("--gpu",),
    )
    ranks: types.Ranks | None = _devices(
        None, "number of trainers on the CPU (default 1); with --gpus, each GPU has one trainer"
    )
    mps: bool = _devices(
        True,
        "share the GPU between sampler and trainer through MPS; without MPS, the two take turns",
        needs=Needs.GPU,
    )
    sampler_threads: types.Positive | None = _devices(
        None,
        "CPU: threads with which the sampler draws and fetches for each trainer (default: an equal part of all cores)",
        metavar="N",
        for_sampler=True,
        needs=Needs.CPU,
    )
    order: types.Order = option(
        "address",
        "order in which a GPU reads the host-memory rows of a batch",
        for_sampler=True,
        needs=Needs.GPU,
    )
    fetch_sms: types.Positive | None = option(
        None,
        "GPU: number of SMs that fetch rows (default: chosen by the sampler)",
        for_sampler=True,
        needs=Needs.GPU,
    )
    presample_batches: types.Positive = option(
        200,
        "maximum number of batches of the short run that counts reads for --cache-policy plan; two epochs at most",
        needs=Needs.CACHE,
    )
    bandwidth: types.ThreeNumbers | None = option(
        None,
        "GB/s at which a GPU reads its own, a peer's and host memory, for the planner (default: measured once on the"
        " GPUs of this machine; without a GPU 1500,360,51)",
        metavar="LOCAL,PEER,HOST",
        needs=Needs.GPU | Needs.CACHE,
    )
    line_ns: types.ThreeNumbers = option(
        (0.0, 0.0, 0.0),
        "added latency in ns for each 128-byte line read from LOCAL, PEER, HOST memory, for the planner",
        metavar="LOCAL,PEER,HOST",
        needs=Needs.CACHE,
    )
    gpu_memory: types.Bytes | None = option(
        None,
        "memory of each GPU, for the planner (default: memory of the smallest visible GPU)",
        needs=Needs.GPU | Needs.CACHE,
    )
    trainer_bytes: types.Bytes | None = option(
        None,
        "memory that a GPU needs in addition to slots and cache, for --cache-ratio auto (default: measured once by a"
        " short run)",
        needs=Needs.CACHE,
    )
    debug_poison_slots: bool = option(False)  # for tests of Cohort itself
    debug_slow_fetch_us: int | None = option(None)
    debug_illegal_access_batch: int | None = option(None)
    use_edge_weights: bool = _model(
        False,
        "use the edge weights of the data set, in GCN or a model of your own that takes edge_weight",
        formerly="edge_weights",
    )
    use_edge_features: bool = option(
        True,
        "use edge features of the data set, if it has some, in GAT, R-GAT and models of your own that take edge_attr",
        BATCHES | LOSS | MEMORY,
        group="Model",
        formerly="edge_features",
    )
    partition: bool = _training(
        False,
        "train each clique of GPUs on the seeds of its own part, and cache for these seeds; cohort dataset partition"
        " DIR --parts K makes the parts for K cliques; batches then depend on the cliques",
        BATCHES,
    )

    def __post_init__(self):
        if self.weight_strategy != "random" and self.weight_attr is None:
            hint = "say which weights: weight_attr='edge_weight', or --weight-attr edge_weight"
            raise CohortError("weight_strategy", "random, without weight_attr", self.weight_strategy, hint)
        if self.batch_dependency != 1 and self.sampling != "labor":
            hint = "say sampling='labor', or --sampling labor, as well"
            raise CohortError("batch_dependency", "1, without sampling labor", str(self.batch_dependency), hint)
        if self.layer_dependency and self.sampling != "labor":
            hint = "say sampling='labor', or --sampling labor, as well"
            raise CohortError("layer_dependency", "False, without sampling labor", "True", hint)
        if self.importance_sampling and self.sampling != "labor":
            hint = "say sampling='labor', or --sampling labor, as well"
            raise CohortError("importance_sampling", "False, without sampling labor", "True", hint)
        if self.importance_sampling and self.use_edge_weights:
            raise weights_beside_shares()
        if self.seed_mix != MIX and self.seed_order == "shuffle":
            hint = "say which communities: seed_order='FILE.npy', or --seed-order FILE.npy"
            raise CohortError("seed_mix", f"{MIX}, with seed_order shuffle", str(self.seed_mix), hint)
        self.seed_order = whole_path_of_order(self.seed_order)  # a run that is resumed elsewhere finds it
        if self.sampling == "labor" and self.weight_attr is not None:
            hint = "layer sampling draws uniformly: leave one of the two options out"
            raise CohortError("sampling", "neighbor, with weight_attr", self.sampling, hint)

    @property
    def weighs_edges(self) -> bool:
        """Whether batches have `edge_weight`."""
        return self.use_edge_weights or self.importance_sampling

    @property
    def draws(self) -> dict[str, Any]:
        """The options that say how neighbours are drawn."""
        return {option.name: getattr(self, option.name) for option in options_of(SamplerSpec) if option.for_draws}


@dataclass(kw_only=True)
class RunSpec(SamplerSpec):
    """Options of every command that trains."""

    model: Model = _model(
        "sage",
        f"{listed([MODELS[name].title for name in ONE_TYPE])}; for several node types"
        f" {listed([MODELS[name].title for name in SEVERAL_TYPES])}; or a class of your own, called"
        " with the arguments in_channels, hidden_channels, num_layers, out_channels and dropout, as PyG's models are;"
        " the model has one layer per entry of --fanout",
        metavar=f"{BUILT_IN}|package.module:Class",
    )
    hidden: types.Positive = _model(256, "features of each hidden layer")
    dropout: types.Probability = _model(0.5, "probability that training drops a hidden feature")
    norm: Literal["none", "layer", "batch"] = _model(
        "none",
        "normalise hidden layers before the activation: layer: each row; batch, for several node types: each column"
        " over the rows of a node type",
    )
    residual: bool = _model(False, "add the input of each hidden layer, except the first, to its output")
    heads: types.Positive = _model(4, f"attention heads of {models_with('has_heads', 'and')}; must divide --hidden")
    featureless: Literal["zero", "embed"] = _model(
        "zero",
        "several node types: what a type without features sends in the first layer; zero: nothing; embed: learned"
        " rows of --hidden columns",
    )
    time_encoding: Literal["relative", "none"] | None = _model(
        None,
        "several node types, with --time-attr edge_time: relative: the model reads how much older each node is than the"
        " time of its seed, as sines and cosines; none: it reads no times (default: relative if nodes have times)",
        metavar="relative|none",
    )
    layers: Literal["cohort", "pyg"] = _model("cohort", "implementation of the layers: Cohort's fused ones or PyG's")
    task: types.TaskName | None = _training(
        None,
        "node: learn the labels of nodes; link: learn which pairs of nodes have an edge (default: link for a data set"
        " with held-out links, see cohort dataset split-links; otherwise node); NAME: a task of the data set, with"
        " nodes, times and labels of its own, or sources, times and targets",
        BATCHES | LOSS | MEMORY,
        metavar="node|link|NAME",
    )
    time_attr: Literal["edge_time", "none"] | None = _sampling(
        None,
        "edge_time: draw only edges that exist at the time of their seed, each seed in a tree of its own; none: draw"
        " edges whatever their time (default: edge_time if edges have times and so have the nodes to learn; otherwise"
        " none)",
        BATCHES | MEMORY,
        metavar="edge_time|none",
    )
    temporal_strategy: Literal["uniform", "last"] = _sampling(
        "uniform",
        "with --time-attr edge_time: uniform: draw at random from the edges up to the seed's time; last: take the"
        " latest of them",
        BATCHES | MEMORY,
    )
    time_window: types.TimeWindow | None = _sampling(
        None,
        "with --time-attr edge_time: draw only edges whose time is at most N before that of the seed, in the unit of"
        " the times, or with its own: 30days, 12h, 5min, 10s, ms, us, ns; for all relations that have times, or for"
        " some by name",
        BATCHES | MEMORY,
        metavar="N|RELATION=N[,...]",
    )
    overlapping_times: Literal["refuse", "allow"] = _training(
        "refuse",
        "with --time-attr edge_time: allow: validation and test need not be strictly later than training, which tells"
        " a model of the time that it is tested on",
        metavar="refuse|allow",
    )
    relation: str | None = _training(
        None,
        "link, several node types: the relation to predict, as its name or source:name:target (default: the relation"
        " with held-out links, otherwise the only relation that is not the reverse of another)",
        BATCHES | LOSS | MEMORY,
        metavar="NAME",
    )
    decoder: Literal["dot", "distmult", "mlp"] = _model(
        "dot",
        "link: how the rows of two nodes give a score: dot: dot product; distmult: dot product with a learned weight"
        " for each column; mlp: two layers on the elementwise product",
    )
    loss: types.Loss = _training(
        "bce",
        "link: bce: binary cross entropy of edges and negatives; softmax: cross entropy of the edge among its"
        " negatives; margin: hinge loss, with a margin of 1 between the edge and each negative; node: cross entropy of"
        " classes and labels and the squared error of numbers; focal: of classes and labels, labels that the model"
        " already gives a high probability count less; or a function of your own, which gets scores and labels and"
        " returns the loss of each node or link",
        LOSS | MEMORY,
        metavar="bce|softmax|margin|focal|package.module:function",
    )
    focal_gamma: types.AtLeastZero | None = _training(
        None, "with --loss focal: how much less: each loss times (1 - p)^GAMMA (default 2)", LOSS, metavar="GAMMA"
    )
    class_weights: types.ClassWeights | None = _training(
        None,
        "how much the loss of a node of each class counts; balanced: n / (C x n_c) for the n_c of the n training labels"
        " that are of class c, one of C; FILE: a .npy or .csv file with a number for each class",
        LOSS,
        metavar="balanced|FILE",
    )
    negatives: types.Positive = _training(
        1, "link: number of negatives for each edge of a batch", BATCHES | LOSS | MEMORY
    )
    negatives_from: types.NegativesFrom = _training(
        "uniform",
        "link: targets of negatives: uniform: any nodes; degree: nodes in proportion to in-degree^0.75; degree:P: in"
        " proportion to in-degree^P; batch: targets of other edges of the batch, for which no nodes are sampled",
        BATCHES | LOSS | MEMORY,
        metavar="uniform|degree[:P]|batch",
    )
    init: Path | None = _training(
        None,
        "start with the weights of the run in this folder, of the same or another data set: those of the same name and"
        " shape are loaded, others are named and start anew",
        LOSS,
        metavar="RUN",
    )
    epochs: types.Positive = _training(10, "passes over the training nodes or edges", COURSE)
    coarse_epochs: types.NotNegative = _training(
        0,
        "data set prepared with --codec planes: read plane A alone, features with a bounded relative error, in the"
        " first K epochs of training; validation and test always read exact features",
        LOSS,
        metavar="K",
    )
    lr: types.AboveZero = _training(0.003, "learning rate of Adam", LOSS)
    weight_decay: types.AtLeastZero = _training(0.0, "weight decay of Adam", LOSS)
    lr_schedule: Literal["constant", "cosine", "linear"] = _training(
        "constant", "learning rate: constant, or falling each epoch and reaching 0 after the last one", LOSS
    )
    clip_norm: types.AboveZero | None = _training(
        None, "scale gradients down to this norm over all parameters if their norm is larger", LOSS, metavar="NORM"
    )
    patience: types.Positive | None = _training(
        None, "end the run after this number of epochs without a better validation score", COURSE, metavar="EPOCHS"
    )
    metrics: MetricNames | None = _training(
        None,
        "what validation and test measure besides the loss's own metric: classes: auroc, average_precision, f1; several"
        " labels a node: the same, each label by itself; numbers: mae, nmae, r2; the mean over several classes or"
        " labels; links: recall@K, ndcg@K, map@K of the K best of all targets that a source has no edge to",
        COURSE,
        metavar="NAME[,NAME...]",
    )
    monitor: MetricName | None = _training(
        None,
        "the metric of validation that says which epoch is the best, for the weights that are kept and for --patience"
        " (default: accuracy of classes, rmse of numbers, micro_f1 of several labels, mrr of links)",
        LOSS | COURSE,
        metavar="NAME",
    )
    amp: bool = _training(False, "train and evaluate in bfloat16 where bfloat16 is safe (autocast)", LOSS | MEMORY)
    eval_fanout: types.Fanout | None = _sampling(
        None,
        "neighbours per hop in validation and test (default: the value of --fanout)",
        BATCHES | MEMORY,
        metavar="N[,N...]",
    )
    sampler_sms: types.NotNegative = _devices(
        0, "GPU: give the sampler the first N SMs and the trainer the other SMs; 0: both share all SMs", metavar="N"
    )
    machine_seconds: types.AboveZero = _devices(
        60.0,
        "several machines: end the run if one machine is silent for this number of seconds",
        needs=Needs.MACHINES,
    )
    feature_placement: Literal["auto", "replicated", "partitioned"] = _devices(
        "auto",
        "several machines: replicated: each has all feature rows; partitioned: each keeps a part of the encoded rows"
        " and asks others for the rest; auto: partitioned if a machine has too little host memory",
        formerly="features",
    )
    out: Path | None = _output(None, "folder for results and logs (default runs/NAME-TIME)", metavar="RUN")
    quiet: bool = _output(False, "print no progress bar, no lines of progress and no table")
    log_seconds: types.AboveZero = _output(
        30.0,
        "seconds between lines of progress in RUN/trainer.log, and on standard output where it is no terminal",
        metavar="S",
    )
    tensorboard: bool = _output(False, "write scalars of each epoch to RUN/tensorboard")
    profile: bool = _output(
        False,
        "record the first two epochs in RUN/timeline.json, including kernels, instead of 40 steps; slows the run down",
        COURSE,
    )
    checkpoint_every: types.Positive | None = _output(
        None,
        "write RUN/checkpoint.pt every N steps (default: at the end of an epoch, at most once a second)",
        COURSE,
        metavar="N",
    )
    callbacks: list[types.Named] | None = option(
        None,
        "classes with hooks that the trainers call, for example loggers",
        COURSE,
        metavar="package.module:Class[,...]",
    )
    matmul_precision: Literal["highest", "high"] = option(
        "highest",
        "precision of float32 products; high: tensor cores round the factors to the 10 bits of TF32; on the CPU,"
        " PyTorch does so with AMX-FP16 alone",
        LOSS,
        needs=Needs.GPU | Needs.AMX,
    )
    cuda_graphs: bool = option(
        True,
        "GPU: capture steps once and replay the captured steps, which takes much less CPU time",
        LOSS | MEMORY,
        needs=Needs.GPU,
    )

    @property
    def has_own_model(self) -> bool:
        """Whether --model names a class of the user's."""
        return ":" in self.model

    @property
    def model_kind(self) -> ModelKind:
        """What --model names."""
        return OWN_MODEL if self.has_own_model else MODELS[self.model]

    @property
    def hops_of_evaluation(self) -> list[int]:
        """Fanout of validation and test."""
        return self.eval_fanout or self.fanout


@dataclass(kw_only=True)
class TrainerSpec(RunSpec):
    """The member "trainer" of run.json: the options, and what follows from data set and machine.

    Attributes:
        targets: the data set's task, or "link", of edges and of a task of links; see trainer/models/targets.py.
        types: of a graph whose types have names; see `graph`.
        edge_dim: features of each edge that batches have, of several edge types the most; 0: none.
        parts: ranks train on seeds of parts of their own: {"parts": a file, "cliques": ranks of each}.
        max_batches: of each pass; for a run that is only to be measured, and makes no checkpoints.
        coarse_error: the relative error bound of features in coarse epochs; 0: there are none.
        weights_of_classes: what --class-weights gives each class.
        label_deviation: the standard deviation of the training labels, of nmae; None: it is not measured.
        task_name: of the data set's task that is learned; None: its splits and labels, or edges as links.
        class_names: of the classes or labels of that task; None: they have none, or columns.json has them.
        in_time: seeds have times, and edges up to these are drawn.
        trees: fields of requests (channel/request.h) for batches in which each seed has a tree of its own; None: seeds
            share nodes.
    """

    num_classes: int
    feature_dim: int
    targets: str = "classification"
    types: GraphTypes | None = None
    edge_dim: int = 0
    parts: dict | None = None
    max_batches: int | None = None
    coarse_error: float = 0.0
    weights_of_classes: list[float] | None = None
    label_deviation: float | None = None
    task_name: str | None = None
    class_names: list[str] | None = None
    in_time: bool = False
    trees: dict[str, Any] | None = None

    @property
    def graph(self) -> GraphTypes:
        """The types of the graph. Without names of types, the numbers of nodes are not known here."""
        dims, relation = {NODE_TYPE: self.feature_dim}, EDGE_TYPE if self.targets == "link" else None
        return self.types or replace(ONE_OF_EACH, feature_dims=dims, relation=relation, edge_dims=[self.edge_dim])


def as_json(spec: SamplerSpec) -> dict[str, Any]:
    """A spec as run.json has it; paths are absolute text."""
    return {field.name: _json_value(getattr(spec, field.name)) for field in fields(spec)}


def _json_value(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value.absolute())
    if isinstance(value, GraphTypes):
        return asdict(value)
    return list(value) if isinstance(value, tuple) else value


@cache
def _names_since() -> dict[str, str]:
    """Of options that had another name: the present one, by that of then."""
    return {option.formerly: option.name for option in options_of(RunSpec) if option.formerly}


def with_current_names(members: dict[str, Any]) -> dict[str, Any]:
    """Options of a run.json that an earlier version may have written, under the names that they have now."""
    current = _names_since()
    return {current.get(name, name): value for name, value in members.items()}


def from_json(members: Any, spec_type: type, place: str) -> Any:
    """The spec that `as_json` has written, of class `spec_type`.

    Raises:
        CohortError: a member is missing, is no value of its type, or is none that this version knows.
    """
    if not isinstance(members, dict):
        raise CohortError(place, "options by name", repr(members)[:80])
    hints = types_of(spec_type)
    unknown = sorted(members.keys() - hints.keys())
    if unknown:
        hint = "another version wrote it: use that version, or train again"
        raise CohortError(place, "options that this version knows", ", ".join(unknown), hint)
    values = {
        field.name: types.checked(f"{place}: {field.name}", members[field.name], hints[field.name])
        for field in fields(spec_type)
        if field.name in members
    }
    try:
        return spec_type(**values)
    except TypeError as error:
        expected = f"the members of {spec_type.__name__}"
        raise CohortError(place, expected, str(error), "another version wrote it") from None
