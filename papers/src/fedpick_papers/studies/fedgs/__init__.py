"""FedGS: Wang et al. (2023), https://arxiv.org/abs/2211.13975; a module for each figure or table."""

__all__: list[str] = []  # each module has a STUDY, or STUDIES of a family
