"""What to cite: the papers of policies, worlds and data, as BibTeX."""

import re
from collections.abc import Mapping

from fedpick import policies
from fedpick._version import __version__
from fedpick.core.errors import bare_name
from fedpick.policies.about import Paper

__all__ = ["DATA", "WORLDS", "bibtex", "cited_pace", "cited_policies", "keys_of", "papers"]

# Papers of data sets, and this library; those of policies are in their files.
_OTHERS = (
    Paper(
        "xiao2017fashion",
        "Xiao, Han and Rasul, Kashif and Vollgraf, Roland",
        "Fashion-{MNIST}: a Novel Image Dataset for Benchmarking Machine Learning Algorithms",
        2017,
        "journal = {arXiv preprint arXiv:1708.07747}",
    ),
    Paper(
        "krizhevsky2009learning",
        "Krizhevsky, Alex",
        "Learning Multiple Layers of Features from Tiny Images",
        2009,
        "institution = {University of Toronto}",
    ),
    Paper(
        "lecun1998gradient",
        "LeCun, Yann and Bottou, L{\\'e}on and Bengio, Yoshua and Haffner, Patrick",
        "Gradient-Based Learning Applied to Document Recognition",
        1998,
        "journal = {Proceedings of the IEEE}",
    ),
    Paper(
        "cohen2017emnist",
        "Cohen, Gregory and Afshar, Saeed and Tapson, Jonathan and {van Schaik}, Andr{\\'e}",
        "{EMNIST}: an Extension of {MNIST} to Handwritten Letters",
        2017,
        "journal = {arXiv preprint arXiv:1702.05373}",
    ),
    Paper(
        "nguyen2022federated",
        "Nguyen, John and Malik, Kshitiz and Zhan, Hongyuan and Yousefpour, Ashkan and Rabbat, Mike and "
        "Malek, Mani and Huba, Dzmitry",
        "Federated Learning with Buffered Asynchronous Aggregation",
        2022,
        "booktitle = {International Conference on Artificial Intelligence and Statistics}",
    ),
    Paper(
        "xie2019asynchronous",
        "Xie, Cong and Koyejo, Sanmi and Gupta, Indranil",
        "Asynchronous Federated Optimization",
        2019,
        "journal = {arXiv preprint arXiv:1903.03934}",
    ),
    Paper(
        "fedpick",
        "{The fedpick authors}",
        "{fedpick}: client selection for federated learning",
        0,
        f"note = {{Version {__version__}}}",
    ),
)
WORLDS = {
    "e3cs": ("huang2022stochastic",),
    "bursts": ("huang2022stochastic",),
    "volatile": ("huang2022stochastic",),
    "rbcs-f": ("huang2021efficiency",),
    "bsfl": ("benami2023client",),
    "fedgs": ("wang2023fedgs",),
}
DATA = {
    "synthetic": ("li2020federated",),
    "fashion-mnist": ("xiao2017fashion",),
    "cifar10": ("krizhevsky2009learning",),
    "mnist": ("lecun1998gradient",),
    "emnist-letters": ("cohen2017emnist",),
    "emnist-digits": ("cohen2017emnist",),
}


def cited_pace(text: str) -> list[str]:
    """Keys for a pace: of FedBuff, with a mixing of FedAsync; with a bound also of Pisces.

    >>> cited_pace("buffered(concurrency=30, size=10)"), cited_pace("rounds(deadline=30)")
    (['nguyen2022federated'], [])
    >>> cited_pace("buffered(bound=20, concurrency=20, size=None)")
    ['nguyen2022federated', 'jiang2022pisces']
    """
    if not text.startswith("buffered("):
        return []
    if re.search(r"\bbound=\d", text):
        return ["nguyen2022federated", "jiang2022pisces"]
    return ["xie2019asynchronous" if re.search(r"\bmixing=['\"]", text) else "nguyen2022federated"]


def papers() -> dict[str, Paper]:
    """All papers that can be cited, by their key."""
    ours = [each.about.paper for each in policies.TABLE.values() if each.about.paper is not None]
    return {paper.key: paper for paper in (*ours, *_OTHERS)}


def cited_policies(text: str) -> list[str]:
    """Keys for the policies that a text names, also inside of another: over-select(e3cs(quota=0.5), 1.3).

    >>> cited_policies("over-select(e3cs(quota=0.5), 1.3)")
    ['bonawitz2019towards', 'huang2022stochastic']
    """
    known = {
        bare_name(name): each.about.paper
        for shown, each in policies.TABLE.items()
        for name in (shown, *each.about.names, *each.about.variants)
    }
    words = [bare_name(word) for word in re.findall(r"(?<![:\w.-])[A-Za-z][\w-]*", text)]
    return list(dict.fromkeys(paper.key for word in words if (paper := known.get(word)) is not None))


def keys_of(text: str | None, known: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Keys for a world or a data set, whose text may have settings and a suffix.

    >>> keys_of("fedgs-ymf(num_clients=50)", WORLDS), keys_of("digits", DATA)
    (['wang2023fedgs'], [])
    """
    name = re.split(r"[(,]", text or "")[0].strip()
    return list(known.get(name) or known.get(name.split("-")[0], ()))


def bibtex(keys: list[str]) -> str:
    """The entries of these keys, each once."""
    known = papers()
    return "\n".join(known[key].bibtex for key in dict.fromkeys(keys))
