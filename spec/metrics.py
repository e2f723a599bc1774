"""The metrics of validation and test by name: which of them a task has, which is better, how they are shown."""

from typing import Annotated

from msgspec import Meta

HITS = (1, 10, 20, 50, 100)  # the k of "hits@k"
RANKED = ("recall", "ndcg", "map")  # of links, among all targets: "recall@20"
OF_TASK = {  # the first is the one by which epochs are compared without --monitor
    "classification": ("accuracy", "auroc", "average_precision", "f1"),
    "regression": ("rmse", "mae", "r2", "nmae"),
    "multilabel": ("micro_f1", "auroc", "average_precision", "f1"),
    "link": ("mrr", *(f"hits@{k}" for k in HITS), "auc"),
}
NAMES = tuple(dict.fromkeys(name for names in OF_TASK.values() for name in names))
ERRORS = ("rmse", "mae", "nmae")  # less is better
NO_SHARES = (*ERRORS, "r2", "mrr", "ndcg", "map")  # shown as numbers; others in percent
TITLES = {"rmse": "RMSE", "mae": "MAE", "nmae": "NMAE", "r2": "R2", "micro_f1": "F1", "mrr": "MRR", "auroc": "AUROC"}

WORDS = (*NAMES, *(f"{kind}@20" for kind in RANKED))
LISTED = ", ".join((*NAMES, *(f"{kind}@K" for kind in RANKED)))
PATTERN = rf"^({'|'.join(NAMES)}|({'|'.join(RANKED)})@[1-9]\d{{0,4}})$"
MetricName = Annotated[str, Meta(pattern=PATTERN, description=LISTED, extra={"words": WORDS})]
MetricNames = Annotated[
    list[MetricName], Meta(min_length=1, description=f"names, each once, of {LISTED}", extra={"unique": True})
]


def names_of(task: str) -> tuple[str, ...]:
    """The metrics of a task as messages name them."""
    return OF_TASK[task] if task != "link" else (*OF_TASK[task], *(f"{kind}@K" for kind in RANKED))


def is_of(task: str, name: str) -> bool:
    """Whether a task has this metric."""
    return name in OF_TASK[task] or task == "link" and ranked(name) is not None


def ranked(name: str) -> tuple[str, int] | None:
    """("recall", 20) of "recall@20"; None of metrics that do not rank all targets."""
    kind, _, k = name.partition("@")
    return (kind, int(k)) if kind in RANKED else None


def is_share(name: str) -> bool:
    """Whether it is shown in percent."""
    return name.partition("@")[0] not in NO_SHARES


def title_of(name: str) -> str:
    """What a sentence calls the metric."""
    return TITLES.get(name, name)


def metric_text(name: str, value: float | None) -> str:
    """A value as people read it: "87.12 %", or 0.4321 of what is no share; "-" where it was not measured."""
    if value is None:
        return "-"
    return f"{100 * value:.2f} %" if is_share(name) else f"{value:.4g}"
