"""Power-of-Choice, Fig. 12 and 13: Fashion-MNIST with larger batches."""

from fedpick.studies.power_of_choice._fashion import SCHEMES
from fedpick.studies.power_of_choice._gains import gains

__all__ = ["STUDY"]

GAIN = {
    "words": "pow-d's gain over rand and afl is consistent with that at b = 64",
    "paper": "about 10 and 5 points at b = 64",
    "gains": [["pow-d", "rand", 10.0], ["pow-d", "afl", 5.0]],
}
STUDY = gains(
    "fig12",
    "batches of 128",
    "Fig. 12, 13 and appendix G.6",
    {name: scheme for name, scheme in SCHEMES.items() if name != "rand, C=0.1"},
    {"alpha = 2": [GAIN], "alpha = 0.3": [GAIN]},
    batch=128,
)
