"""Every policy in the same nine worlds, with the same budget of messages; a module for each data set."""

__all__: list[str] = []  # each module has a STUDY, or STUDIES of a family
