"""What every room stands on."""

from cohort.base import log  # noqa: F401 (scripts hear nothing unless they ask)
