"""``cohort bench``: parts of a run alone."""

from cohort.launch.bench import parts, step


def register(commands) -> None:
    """Adds the command."""
    text = "measure parts of a run alone"
    benches = commands.add_parser("bench", help=text, description=text).add_subparsers(required=True, metavar="WHAT")
    parts.register(benches)
    step.register(benches)
