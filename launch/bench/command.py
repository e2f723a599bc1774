"""``cohort bench``: measures the parts of a run separately."""

from cohort_gnn.launch.bench import disk, parts, step


def register(commands) -> None:
    """Adds the command."""
    text = "measure the parts of a run separately"
    benches = commands.add_parser("bench", help=text, description=text).add_subparsers(required=True, metavar="WHAT")
    parts.register(benches)
    step.register(benches)
    disk.register(benches)
