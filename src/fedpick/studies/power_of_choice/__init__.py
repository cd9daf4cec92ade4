"""Power-of-Choice: Cho, Wang & Joshi (2021), a file for each figure or table."""

__all__: list[str] = []  # each file offers its own study
