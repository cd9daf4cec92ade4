"""The version of fedpick, kept apart so that building a wheel need not import the package."""

__version__ = "0.3.0"
NUMBERS = "0.3"  # the minor version since which a seed gives the same numbers; keys of runs contain it
