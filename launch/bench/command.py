"""``cohort bench``: measures the parts of a run separately."""


def register(commands):
    """Adds the command; returns where its parts may be added."""
    text = "measure the parts of a run separately"
    return commands.add_parser("bench", help=text, description=text).add_subparsers(required=True, metavar="WHAT")
