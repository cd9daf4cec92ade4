"""RBCS-F: Huang et al. (2021), https://doi.org/10.1109/TPDS.2020.3040887; a module for each figure."""

__all__: list[str] = []  # each module has a STUDY, or STUDIES of a family
