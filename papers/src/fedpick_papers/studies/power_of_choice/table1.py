"""Power-of-Choice, Table 1: Fashion-MNIST, Dirichlet(0.3)."""

from fedpick_papers.studies.power_of_choice._tables import table

__all__ = ["STUDY"]

STUDY = table(
    1,
    0.3,
    [(71.21, 2.41), (64.87, 1.97), (76.47, 0.87), (76.63, 0.79), (76.56, 1.00), (73.28, 1.05)],
    [172, 234, 89, 80, 98, 121],
    [0.43, 0.36, 0.48, 0.37, 0.37, 0.36],
    {
        "over rand": {"cpow-d": 10.0, "rpow-d": 10.0},
        "variants": "as well",
        "over rand, C=0.1": 5.0,
        "words": "about",
    },
)
