"""E3CS: Huang, Lin, Shen, Li & Zomaya (2022), https://arxiv.org/abs/2011.08756; a module for each figure."""

__all__: list[str] = []  # each module has a STUDY, or STUDIES of a family
