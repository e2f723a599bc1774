"""Arguments of loaders that are no part of their interface: what loaders give each other, and tests."""

from dataclasses import dataclass, fields

from cohort_gnn.trainer.loader.sampler_process import SamplerProcess
from cohort_gnn.trainer.loader.subgraph import DRAWN, Subgraph


@dataclass(frozen=True)
class InternalArguments:
    """Keyword arguments with an underscore before the name, which no signature shows.

    Attributes:
        sampler: of another loader, shared; None: the loader starts one.
        subgraph: the edges of batches; given with `sampler`.
        has_labels: batches have y.
        debug: further members of the sampler's run.json.
    """

    sampler: SamplerProcess | None = None
    subgraph: Subgraph = DRAWN
    has_labels: bool = True
    debug: dict | None = None

    @classmethod
    def taken_from(cls, arguments: dict) -> "InternalArguments":
        """Those among the arguments, which then has the others."""
        given = {field.name: f"_{field.name}" for field in fields(cls) if f"_{field.name}" in arguments}
        return cls(**{name: arguments.pop(argument) for name, argument in given.items()})
