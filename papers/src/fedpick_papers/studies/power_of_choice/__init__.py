"""Power-of-Choice: Cho, Wang & Joshi (2021), https://arxiv.org/abs/2010.01243; a module for each figure or table."""

__all__: list[str] = []  # each module has a STUDY, or STUDIES of a family
