"""Power-of-Choice, Fig. 5: Fashion-MNIST with several d."""

from fedpick_papers.studies.power_of_choice._gains import gains

__all__ = ["STUDY"]

SIZED = {f"d={d}": [f"pow-d(candidates={d})", 0.03] for d in (6, 9, 15)}
GAIN = {
    "words": "pow-d is more accurate than rand and afl",
    "paper": "about 10 and 5 points",
    "gains": [["d=6", "rand", 10.0], ["d=6", "afl", 5.0]],
}
STUDY = gains(
    "fig5",
    "several d",
    "Fig. 5",
    {"rand": ["size-weighted", 0.03], **SIZED, "afl": ["active-fl", 0.03]},
    {
        "alpha = 2": [
            GAIN,
            {"words": "a larger d is better", "paper": "'larger d … performs better'", "orders": ["d=15 > d=6"]},
        ],
        "alpha = 0.3": [
            GAIN,
            {
                "words": "d = 6 is better than larger d",
                "paper": "'smaller d = 6 performs better than larger d'",
                "orders": ["d=6 > d=9", "d=6 > d=15"],
            },
        ],
    },
)
