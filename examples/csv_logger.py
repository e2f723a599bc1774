"""A logger of epochs: cd examples && cohort train DATA --callbacks csv_logger:CsvLogger

A logger for W&B or MLflow has the same hooks: begin its run in run_begins, log in epoch_ended, finish in run_ended.
"""

import csv

import cohort_gnn as cohort


class CsvLogger(cohort.Callback):
    """A line of RUN/epochs.csv for each epoch, also of a run that is resumed."""

    def run_begins(self, trainer) -> None:
        self.file = self.writer = None
        if trainer.ranks.rank == 0:
            self.file = open(trainer.out / "epochs.csv", "w", newline="")
            for report in trainer.report.epochs:  # of the run before it was resumed
                self.write(report)

    def epoch_ended(self, trainer, report) -> None:
        self.write(report)

    def run_ended(self, trainer, report) -> None:
        if self.file:
            self.file.close()

    def write(self, report) -> None:
        if not self.file:
            return
        row = {"epoch": report.epoch, "loss": report.loss, "seconds": report.seconds, **report.val_metrics}
        if self.writer is None:
            self.writer = csv.DictWriter(self.file, row, lineterminator="\n")
            self.writer.writeheader()
        self.writer.writerow(row)
        self.file.flush()
