"""Power-of-Choice, Fig. 9 and 10: digits among 500 clients."""

from fedpick_papers.studies._verdicts import POINT
from fedpick_papers.studies.power_of_choice._gains import gains

__all__ = ["STUDY"]

SIZED = {f"d={d}": [f"pow-d(candidates={d})", 0.03] for d in (30, 45, 75)}
BETTER = {
    "words": "pow-d is more accurate than rand, for every d",
    "paper": "'significantly higher'; curves only",
    "gains": [[name, "rand", None] for name in SIZED],
    "least": POINT,  # 'significantly' is read as a point; the curves are not at hand
}
AS_GOOD = {"words": "cpow-d is as good as pow-d", "paper": "'as good as'; curves only", "alike": [["cpow-d", "d=30"]]}
STUDY = gains(
    "fig9",
    "K = 500",
    "Fig. 9, 10 and appendix G.4",
    {
        "rand": ["size-weighted", 0.03],
        **SIZED,
        "cpow-d": ["cpow-d(candidates=30)", 0.03],
        "rpow-d": ["rpow-d(candidates=250)", 0.03],
        "afl": ["active-fl", 0.03],
    },
    {
        "alpha = 2": [
            BETTER,
            {
                "words": "afl follows pow-d in the later rounds, but is slower",
                "paper": "curves only",
                "alike": [["afl", "d=30"]],
                "sooner": [["d=30", "afl"]],
            },
            AS_GOOD,
            {
                "words": "rpow-d falls behind pow-d and cpow-d",
                "paper": "'falls behind'; curves only",
                "orders": ["d=30 > rpow-d", "cpow-d > rpow-d"],
            },
        ],
        "alpha = 0.3": [
            BETTER,
            AS_GOOD,
            {
                "words": "rpow-d is like pow-d and cpow-d",
                "paper": "'similarly'; curves only",
                "alike": [["rpow-d", "d=30"], ["rpow-d", "cpow-d"]],
            },
        ],
    },
    "MNIST digits, of which there are 60,000, stand in for the digits of EMNIST (240,000), which could not be had",
    data="mnist",
    clients=500,
    halved=[300],
    rounds=350,  # the axes end a little after 300
)
