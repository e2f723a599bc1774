from collections.abc import Sequence


def with_cuda() -> bool:
    """True when this build has the CUDA backend."""

def end_with_parent(parent: int, signal: int) -> None:
    """Has the kernel send this process a signal when its parent dies."""

def keep_freed_memory() -> None:
    """
    Has malloc() keep what is freed, for steps that allocate as much again; see base/host_memory.h.
    """

def padded(count: int) -> int:
    """How many there is room for where there are so many."""

class HeldSlot:
    """
    A batch in shared memory. The slot goes back to the sampler when this object and all views of it are gone.
    """

    @property
    def edge_index(self) -> object: ...

    @property
    def source_node(self) -> object:
        """
        int64 [num_edges], the node of each edge's source, where last_hop_global.
        """

    @property
    def indptr(self) -> object: ...

    @property
    def e_id(self) -> object:
        """
        int64 [num_edges]: where each edge stands in the data set's indices; None where nobody asked for it.
        """

    @property
    def edge_weight(self) -> object:
        """
        float32 [num_edges], as edge_index has the edges; None where nobody asked for it.
        """

    @property
    def n_id(self) -> object: ...

    @property
    def row_index(self) -> object:
        """
        int64 [num_nodes], the row of each node in the table or the pool of its type, unless slots have rows.
        """

    @property
    def tree(self) -> object:
        """
        int64 [num_nodes], the seed, by its number in the batch, whose tree each node is in; None: seeds share nodes.
        """

    @property
    def y(self) -> object: ...

    @property
    def endpoints(self) -> object:
        """
        Where seeds are pairs: int64, the batch-local ids of their sources, then of their targets.
        """

    @property
    def input_id(self) -> object: ...

    @property
    def nodes_of_types(self) -> list[list[int]]:
        """
        Nodes by hop of each node type. n_id has the nodes of one type after the other.
        """

    @property
    def edges_of_relations(self) -> list[list[int]]:
        """
        Edges by hop of each relation. edge_index, indptr and e_id have the edges of one relation after the other.
        """

    def table(self, type: int) -> object:
        """Feature rows of the nodes of a type; None where the type has none."""

    def row_index_of(self, type: int) -> object:
        """The part of row_index that is the type's, int64 [nodes]."""

    def edge_table(self, relation: int) -> object:
        """Feature rows of the edges of a relation; None where batches have none."""

    def offsets(self, relation: int) -> object:
        """The part of indptr that is the relation's, int64 [targets + 1]."""

    def edges(self, relation: int) -> object:
        """The columns of edge_index that are the relation's, int64 [2, edges]."""

    @property
    def last_hop_global(self) -> bool:
        """
        True when edge_index is without the edges of the last hop, and source_node has all.
        """

    def holds(self, address: int) -> bool:
        """Whether the address lies in the slot."""

    def record_stream(self, stream: int) -> None:
        """
        Work on this CUDA stream (its handle), too, may still read the slot when it is given back.
        """

    def leave_rows(self) -> None:
        """
        Work put on the batch's CUDA stream from now on reads no rows of the pool that the batch names.
        """

    @property
    def num_seeds(self) -> int: ...

    @property
    def num_inputs(self) -> int:
        """
        How much of the seed set the batch has: seeds, or pairs, whose endpoints are the seeds.
        """

    @property
    def step(self) -> int: ...

    @property
    def num_steps(self) -> int: ...

    @property
    def num_sampled_nodes(self) -> list[int]:
        """Nodes of all types, by hop."""

    @property
    def num_sampled_edges(self) -> list[int]:
        """Edges of all relations, by hop."""

    @property
    def sample_us(self) -> float: ...

    @property
    def fetch_us(self) -> float: ...

    @property
    def spans(self) -> tuple[float, float, float, float]:
        """
        When the sampler drew the batch and when it wrote the slot: begin and end of each, in microseconds of the clock of time.monotonic().
        """

    @property
    def row_tiers(self) -> list[tuple[int, int, float]]:
        """
        (rows, stored bytes, seconds) of feature rows by where they were read: local, peer, host, recent.
        """

    @property
    def edge_rows(self) -> tuple[int, int, float]:
        """
        (rows, stored bytes, seconds) of the edges' feature rows, all of which are read from host memory.
        """

    @property
    def list_tiers(self) -> list[tuple[int, int]]:
        """(lists, bytes of neighbours drawn) of neighbour lists, likewise."""

class Receiver:
    """The trainer's end of the channel in a folder."""

    def __init__(self, folder: str) -> None: ...

    def request(self, fanout: Sequence[int], **fields) -> int:
        """
        Asks for a pass over a seed set; returns its number. `fanout`: int32 [num_relations, num_hops] in turn, entry 0 of each relation next to the seeds, -1: all in-neighbours. `fields`: by name, as channel/request.h lists them; others are 0, False or the first word.
        """

    def next(self, pass_number: int, limit_seconds: float, stream: int) -> HeldSlot:
        """
        The next batch of the pass. `limit_seconds`: how long the sampler may stay in one stage; `stream`: handle of the CUDA stream on which the batch will be used, 0 on the CPU.
        """

    def cancel_below(self, pass_number: int) -> None:
        """Batches of earlier passes are not wanted any more."""

    def leave(self) -> None:
        """Ends the trainer's part; batches held stay valid."""

    def set_idle(self) -> None:
        """Says that the trainer is between passes."""

    def fail(self, text: str) -> None:
        """Leaves the reason of the trainer's failure in the channel."""

    @property
    def rows_in(self) -> str:
        """
        Where rows are: "slots", where x has them; "table" of all rows, or "pool" of rows of recent batches, one a node type, of which a batch has rows `row_index`.
        """

    @property
    def num_types(self) -> int:
        """Node types of the graph, at least 1."""

    def rows(self, type: int) -> object:
        """
        The table or the pool [num_rows, dim] of a node type, in memory of the GPU; None where it has no features. On the CPU the data set has the table. Of a pool only rows that a batch names may be read.
        """

    @property
    def device(self) -> str:
        """"cpu" or "cuda:<ordinal>"."""

    @property
    def slots_bytes(self) -> int:
        """Memory of all slots as they are now, and of pools of rows."""

class RestStream:
    """
    A stream of a GPU (CUDA ordinal) whose kernels keep off the SMs of the sampler.
    """

    def __init__(self, gpu: int, sampler_sms: int) -> None: ...

    @property
    def num_sms(self) -> int: ...

    @property
    def handle(self) -> int:
        """The cudaStream_t; it lives as long as this object."""
