"""BSFL, Fig. 8: linear regression, non-iid."""

from fedpick.studies.bsfl._regression import study

__all__ = ["STUDY"]

STUDY = study(
    8,
    "non-iid",
    by_size=True,
    data={
        "sizes differ": "linear-regression(dim=10, size=log-normal(sigma=1.0, mean=20, at_least=5), noise=1.0)",
        "sizes and inputs differ": (
            "linear-regression(dim=10, size=log-normal(sigma=1.0, mean=20, at_least=5), noise=1.0, shift=1.0)"
        ),
    },
    schemes={
        "BSFL": "bsfl(alpha=1.0, beta=1.0, quality=1.0, tau_min=1.0, tau_max=20.0)",
        "CS-UCB-Q": "cs-ucb-q(tau_min=1.0, tau_max=20.0)",
        "Random by size": "size-weighted(replace=False)",
    },
    sizes="sizes log-normal with mean 20 and sigma 1, at least 5; in the second part inputs are shifted, too",
)
