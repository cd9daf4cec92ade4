"""The version of fedpick, kept apart so that building a wheel need not import the package."""

__version__ = "0.1.0"
