"""Power-of-Choice, Fig. 14 and 15: Fashion-MNIST with more local steps."""

from fedpick.studies.power_of_choice._fashion import SCHEMES
from fedpick.studies.power_of_choice._gains import gains

__all__ = ["STUDY"]

STUDY = gains(
    "fig14",
    "100 local steps",
    "Fig. 14, 15 and appendix G.6",
    {name: scheme for name, scheme in SCHEMES.items() if name != "rand, C=0.1"},
    {
        "alpha = 2": [
            {
                "words": "pow-d's gain over rand is consistent with that at 30 steps",
                "paper": "about 10 points at 30 steps",
                "gains": [["pow-d", "rand", 10.0]],
            }
        ],
        "alpha = 0.3": [{"words": "pow-d is like rand", "paper": "'similarly'", "alike": [["pow-d", "rand"]]}],
    },
    steps=100,
)
