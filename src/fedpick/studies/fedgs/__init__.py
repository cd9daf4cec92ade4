"""FedGS: Wang et al. (2023), a file for each figure or table."""

__all__: list[str] = []  # each file offers its own study
