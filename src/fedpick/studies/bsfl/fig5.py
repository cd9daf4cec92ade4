"""BSFL, Fig. 5: linear regression, iid."""

from fedpick.studies.bsfl._regression import study

__all__ = ["STUDY"]

STUDY = study(
    5,
    "iid",
    by_size=False,
    data={
        "10 examples a client": "linear-regression(dim=10, size=10, noise=1.0)",
        "100 examples a client": "linear-regression(dim=10, size=100, noise=1.0)",
    },
    schemes={
        "BSFL": "bsfl(alpha=1.0, beta=1.0, tau_min=1.0, tau_max=20.0)",
        "CS-UCB": "cs-ucb(tau_min=1.0, tau_max=20.0)",
        "Random": "uniform",
    },
    sizes="10 or 100 examples a client",
)
