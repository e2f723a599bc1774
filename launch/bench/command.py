"""``cohort bench``: measures the parts of a run separately."""


def register(parser):
    """Returns where the parts of the command may be added."""
    parser.description = "measure the parts of a run separately"
    return parser.add_subparsers(required=True, metavar="WHAT")
