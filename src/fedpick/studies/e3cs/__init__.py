"""E3CS: Huang, Lin, Shen, Li & Zomaya (2022), a file for each figure."""

__all__: list[str] = []  # each file offers its own study
