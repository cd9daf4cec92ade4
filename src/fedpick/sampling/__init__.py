"""Sampling designs: draw k of K clients with unequal probabilities.

Exact designs take inclusion probabilities p that sum to a whole number k, and include client i with probability
exactly p[i]: `systematic` and `pivotal` (which has a lower variance than independent draws, because the chosen are
negatively correlated). The sequential draws take weights: `weighted` without replacement, `with_replacement`, and
`multinomial_nr`, the papers' draw, whose inclusion probabilities are not the p that they claim. `proportional` and
`capped` turn sizes or log-weights into inclusion probabilities.
"""

from fedpick.sampling.exact import pivotal, systematic
from fedpick.sampling.proportional import capped, proportional
from fedpick.sampling.sequential import multinomial_nr, weighted, with_replacement

__all__ = ["capped", "multinomial_nr", "pivotal", "proportional", "systematic", "weighted", "with_replacement"]
