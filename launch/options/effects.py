"""Options that have no effect in a run are named: nothing else would show that they do nothing."""

import logging
from typing import Any

from cohort_gnn.launch.options.devices import resolve_device
from cohort_gnn.launch.options.parser import as_text
from cohort_gnn.spec.options import Needs, flag_of, options_of
from cohort_gnn.spec.run import SamplerSpec

LOG = logging.getLogger(__name__)

TEXTS = {
    Needs.GPU: "a GPU",
    Needs.AMX: "AMX-FP16 in the CPU",
    Needs.CPU: "--device cpu",
    Needs.CACHE: "a cache (--cache-ratio, --cache-bytes)",
    Needs.PARTS: "--partition",
    Needs.FAR_ROWS: "rows on the disk (--host-bytes) or on other machines",
    Needs.MACHINES: "several machines",
}


def say_what_has_no_effect(spec: SamplerSpec, on_machines: bool = False) -> None:
    """Names the options that are not at their defaults and to which the run pays no heed.

    Args:
        on_machines: the run has several.
    """
    on_gpu = resolve_device(spec.device) == "cuda"
    has_cache = spec.cache_policy != "none" and (spec.cache_ratio is not None or spec.cache_bytes is not None)
    present = Needs.GPU if on_gpu else Needs.CPU
    present |= Needs.CACHE if has_cache else Needs.NOTHING
    present |= Needs.PARTS if spec.partition else Needs.NOTHING
    present |= Needs.MACHINES if on_machines else Needs.NOTHING
    present |= Needs.FAR_ROWS if on_machines or spec.host_bytes is not None else Needs.NOTHING
    flags: dict[Needs, list[str]] = {}
    for option in options_of(type(spec)):
        value = getattr(spec, option.name)
        if option.needs and value != option.default and not option.needs & present:
            flags.setdefault(option.needs, []).append(_as_typed(option.name, value))
    for needs, unused in flags.items():
        missing = " or ".join(text for need, text in TEXTS.items() if need & needs)
        LOG.info(f"{', '.join(unused)}: no effect without {missing}")


def _as_typed(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return flag_of(name if value else f"no_{name}")
    return f"{flag_of(name)} {as_text(value)}"
