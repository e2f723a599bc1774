"""The best targets of a request's nodes, of a model that predicts links."""

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cohort_gnn.dataset import StoredGraph
from cohort_gnn.dataset.links import LinkEdges
from cohort_gnn.spec.graph import EdgeType
from cohort_gnn.trainer.models.best_targets import Known, best_alone, pairs_left_out, queries_of
from cohort_gnn.trainer.predict.layerwise import KeptIn, Layerwise, MemoryPlan, keep_scores
from cohort_gnn.trainer.predict.neighbourhoods import NewEdges
from cohort_gnn.trainer.predict.node_rows import new_rows
from cohort_gnn.trainer.predict.program import spans_at, targets_there

WORK_BYTES = 256 << 20  # of a piece of a layer, beside the rows of all nodes


class ServedTargets:
    """All targets of a relation, with the rows that the model makes of them: those are computed at the first use, and
    again for another time, in host memory, with one hidden layer of all nodes at a time.

    Args:
        relation: whose links the model predicts.
        device: where the model is, and layers run.
        windows: as `windows_of` has them.
        is_task: the model learned a task: targets that a source is linked to may come again.
    """

    def __init__(
        self,
        model: Any,
        data: StoredGraph,
        relation: EdgeType,
        device: torch.device,
        windows: Mapping[EdgeType, int] | None,
        is_task: bool,
    ):
        self._model, self._data, self._relation, self._device = model, data, relation, device
        self._windows, self._is_task = windows, is_task
        self._edges = LinkEdges(data, relation)
        self._known_at = functools.lru_cache(1)(functools.partial(Known.from_edges, self._edges))
        self._targets_at = functools.lru_cache(1)(self._make_targets)  # computed for hours where requests share a time

    def _make_targets(self, at_time: int | None) -> tuple[np.ndarray, Tensor | None]:
        """(rows float32 [targets, width], their ids int64 [targets] ascending; None: 0, 1, ...) of those that exist."""
        name, model = self._relation[2], self._model
        hidden = KeptIn.WHOLE if self._device.type == "cpu" else KeptIn.HOST
        memory = MemoryPlan(WORK_BYTES, [KeptIn.FILES, *[hidden] * (len(model.edge_types) - 1)])
        rows = new_rows((self._data.node_types[name].num_nodes, model.num_classes), None)
        spans = None if at_time is None else spans_at(self._windows or {}, at_time)
        layers = Layerwise(model, self._data, memory, self._data.path, self._device, name, spans, at_time)
        layers.run(keep_scores(rows), lambda done: None)
        there = targets_there(self._data, name, at_time)
        return (rows, None) if there is None else (rows[there], torch.from_numpy(there))

    def best(
        self,
        sources: np.ndarray,
        rows: Tensor,
        k: int,
        new: NewEdges | None,
        exclude_seen: bool,
        at_time: int | None = None,
    ) -> tuple[Tensor, Tensor]:
        """(targets int64 [n, k], the best first, -1 where there are fewer; their scores float32 [n, k])

        Args:
            sources: int64 [n]; new nodes have the numbers after those of the data set.
            rows: float32 [n, width], of the sources.
            new: edges of the relation that the request adds.
            at_time: of the scores, where the run used times.
        """
        exclude_seen = exclude_seen and not self._is_task
        is_known = sources < self._edges.num_sources
        places = np.flatnonzero(is_known)
        known = self._known_at(at_time) if exclude_seen else None
        place, target = pairs_left_out(known, self._edges, sources[is_known])
        left_out = [(torch.from_numpy(places)[place], target)]
        if exclude_seen and new is not None:
            ways = [(new.sources, new.targets)]
            ways += [] if self._edges.has_directions else [(new.targets, new.sources)]
            is_seen = True if at_time is None or new.times is None else new.times <= at_time
            for here, there in ways:
                among = (there < self._edges.num_targets) & np.isin(here, sources) & is_seen
                pairs = (sources[:, None] == here[among][None, :]).nonzero()
                left_out.append((torch.from_numpy(pairs[0]), torch.from_numpy(there[among][pairs[1]])))
        pairs = tuple(torch.cat([part[side] for part in left_out]) for side in (0, 1))
        targets, candidates = self._targets_at(at_time)
        query = queries_of(self._model.link_decoder, rows)
        return best_alone(query, targets, min(k, self._edges.num_targets), pairs, candidates)
