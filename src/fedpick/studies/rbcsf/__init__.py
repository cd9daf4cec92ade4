"""RBCS-F: Huang, Lin, Wu, He, Li & Zomaya (2021), a file for each figure."""

__all__: list[str] = []  # each file offers its own study
