"""Names of the files in a run's folder."""

RUN = "run.json"
SUMMARY = "summary.json"
METRICS = "metrics.jsonl"  # a line an epoch
CHECKPOINT = "checkpoint.pt"
MODEL = "model.pt"
TEST_SCORES = "test.parquet"  # of a task of the data set: a row for each of its test
PLAN = "plan.json"
TIMELINE = "timeline.json"  # trace events
REPORT = "report.html"
