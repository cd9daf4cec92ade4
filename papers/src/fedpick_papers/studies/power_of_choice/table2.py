"""Power-of-Choice, Table 2: Fashion-MNIST, Dirichlet(2)."""

from fedpick_papers.studies.power_of_choice._tables import table

__all__ = ["STUDY"]

STUDY = table(
    2,
    2.0,
    [(63.50, 2.74), (66.03, 1.47), (73.81, 1.14), (73.36, 1.17), (72.52, 0.89), (70.64, 1.99)],
    [135, 136, 82, 89, 99, 131],
    [0.42, 0.36, 0.46, 0.38, 0.36, 0.36],
    {
        "over rand": {"cpow-d": 6.0, "rpow-d": 5.0},
        "variants": "lower",
        "over rand, C=0.1": 10.0,
        "words": "at least approximately",
    },
)
