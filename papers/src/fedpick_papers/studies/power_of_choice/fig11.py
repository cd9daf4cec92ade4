"""Power-of-Choice, Fig. 11: Fashion-MNIST with more clients a round."""

from fedpick_papers.studies.power_of_choice._gains import gains

__all__ = ["STUDY"]

OURS = ("pow-d", "cpow-d", "rpow-d")
STUDY = gains(
    "fig11",
    "C = 0.1",
    "Fig. 11 and appendix G.5",
    {
        "rand": ["size-weighted", 0.1],
        "pow-d": ["pow-d(candidates=20)", 0.1],
        "cpow-d": ["cpow-d(candidates=20)", 0.1],
        "rpow-d": ["rpow-d(candidates=50)", 0.1],
        "afl": ["active-fl", 0.1],
    },
    {
        "alpha = 2": [
            {"words": "pow-d is more accurate than rand", "paper": "15 points", "gains": [["pow-d", "rand", 15.0]]},
            {
                "words": "cpow-d is between pow-d and rand, and better than afl",
                "paper": "'slightly lower' than pow-d",
                "orders": ["pow-d > cpow-d > rand", "cpow-d > afl"],
            },
            {"words": "rpow-d is as good as afl", "paper": "'as well as'", "alike": [["rpow-d", "afl"]]},
        ],
        "alpha = 0.3": [
            {
                "words": "pow-d, cpow-d and rpow-d are more accurate than rand",
                "paper": "5 points",
                "gains": [[name, "rand", 5.0] for name in OURS],
            },
            {
                "words": "pow-d, cpow-d and rpow-d are equally accurate",
                "paper": "'approximately equal'",
                "alike": [["pow-d", "cpow-d"], ["pow-d", "rpow-d"], ["cpow-d", "rpow-d"]],
            },
            {
                "words": "pow-d, cpow-d and rpow-d are more accurate than afl",
                "paper": "'slightly better'",
                "orders": [f"{name} > afl" for name in OURS],
            },
        ],
    },
    also="The axes of the paper's Fig. 11 reach 400 rounds; we stop at 300, as in Fig. 5 and 12",
)
