"""The metrics of validation and test by name: which of them a task has, which is better, how they are shown."""

from typing import Annotated

from msgspec import Meta

HITS = (1, 10, 20, 50, 100)  # the k of "hits@k"
OF_TASK = {  # the first is the one by which epochs are compared without --monitor
    "classification": ("accuracy", "auroc", "average_precision", "f1"),
    "regression": ("rmse", "mae", "r2"),
    "multilabel": ("micro_f1", "auroc", "average_precision", "f1"),
    "link": ("mrr", *(f"hits@{k}" for k in HITS), "auc"),
}
NAMES = tuple(dict.fromkeys(name for names in OF_TASK.values() for name in names))
ERRORS = ("rmse", "mae")  # less is better
NO_SHARES = (*ERRORS, "r2", "mrr")  # shown as numbers; others in percent
TITLES = {"rmse": "RMSE", "mae": "MAE", "r2": "R2", "micro_f1": "F1", "mrr": "MRR", "auroc": "AUROC"}

MetricName = Annotated[
    str, Meta(pattern=f"^({'|'.join(NAMES)})$", description=", ".join(NAMES), extra={"words": NAMES})
]
MetricNames = Annotated[
    list[MetricName], Meta(min_length=1, description=f"names, each once, of {', '.join(NAMES)}", extra={"unique": True})
]


def title_of(name: str) -> str:
    """What a sentence calls the metric."""
    return TITLES.get(name, name)


def metric_text(name: str, value: float | None) -> str:
    """A value as people read it: "87.12 %", or 0.4321 of what is no share; "-" where it was not measured."""
    if value is None:
        return "-"
    return f"{value:.4g}" if name in NO_SHARES else f"{100 * value:.2f} %"
