"""Results of runs: scores, tables over seeds, plots."""

__all__: list[str] = []
