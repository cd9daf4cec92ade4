"""What to cite: the papers of policies, worlds and data, as BibTeX."""

import re
from collections.abc import Mapping

from fedpick._version import __version__
from fedpick.core.errors import bare_name

__all__ = ["DATA", "OURS", "POLICIES", "WORLDS", "bibtex", "cited_policies", "keys_of"]

# key: (kind, authors, title, year, where it appeared)
_PAPERS = {
    "mcmahan2017communication": (
        "inproceedings",
        'McMahan, Brendan and Moore, Eider and Ramage, Daniel and Hampson, Seth and {Ag{\\"u}era y Arcas}, Blaise',
        "Communication-Efficient Learning of Deep Networks from Decentralized Data",
        2017,
        "booktitle = {International Conference on Artificial Intelligence and Statistics (AISTATS)}",
    ),
    "li2020federated": (
        "inproceedings",
        "Li, Tian and Sahu, Anit Kumar and Zaheer, Manzil and Sanjabi, Maziar and Talwalkar, Ameet and Smith, Virginia",
        "Federated Optimization in Heterogeneous Networks",
        2020,
        "booktitle = {Machine Learning and Systems (MLSys)}",
    ),
    "nishio2019client": (
        "inproceedings",
        "Nishio, Takayuki and Yonetani, Ryo",
        "Client Selection for Federated Learning with Heterogeneous Resources in Mobile Edge",
        2019,
        "booktitle = {IEEE International Conference on Communications (ICC)}",
    ),
    "cho2020client": (
        "article",
        "Cho, Yae Jee and Wang, Jianyu and Joshi, Gauri",
        "Client Selection in Federated Learning: Convergence Analysis and Power-of-Choice Selection Strategies",
        2020,
        "journal = {arXiv preprint arXiv:2010.01243}",
    ),
    "goetz2019active": (
        "article",
        "Goetz, Jack and Malik, Kshitiz and Bui, Duc and Moon, Seungwhan and Liu, Honglei and Kumar, Anuj",
        "Active Federated Learning",
        2019,
        "journal = {arXiv preprint arXiv:1909.12641}",
    ),
    "huang2022stochastic": (
        "article",
        "Huang, Tiansheng and Lin, Weiwei and Shen, Li and Li, Keqin and Zomaya, Albert Y.",
        "Stochastic Client Selection for Federated Learning with Volatile Clients",
        2022,
        "journal = {IEEE Internet of Things Journal},\n  volume = {9},\n  number = {20},\n"
        "  doi = {10.1109/JIOT.2022.3172113}",
    ),
    "huang2021efficiency": (
        "article",
        "Huang, Tiansheng and Lin, Weiwei and Wu, Wentai and He, Ligang and Li, Keqin and Zomaya, Albert Y.",
        "An Efficiency-Boosting Client Selection Scheme for Federated Learning with Fairness Guarantee",
        2021,
        "journal = {IEEE Transactions on Parallel and Distributed Systems},\n  volume = {32},\n  number = {7},\n"
        "  pages = {1552--1564},\n  doi = {10.1109/TPDS.2020.3040887}",
    ),
    "benami2023client": (
        "article",
        "{Ben Ami}, Dan and Cohen, Kobi and Zhao, Qing",
        "Client Selection for Generalization in Accelerated Federated Learning: A Multi-Armed Bandit Approach",
        2023,
        "journal = {arXiv preprint arXiv:2303.10373}",
    ),
    "xia2020multi": (
        "article",
        "Xia, Wenchao and Quek, Tony Q. S. and Guo, Kun and Wen, Wanli and Yang, Howard H. and Zhu, Hongbo",
        "Multi-Armed Bandit-Based Client Scheduling for Federated Learning",
        2020,
        "journal = {IEEE Transactions on Wireless Communications},\n  doi = {10.1109/TWC.2020.3008091}",
    ),
    "wang2023fedgs": (
        "inproceedings",
        "Wang, Zheng and Fan, Xiaoliang and Qi, Jianzhong and Jin, Haibing and Yang, Peizhen and Shen, Siqi and "
        "Wang, Cheng",
        "{FedGS}: Federated Graph-Based Sampling with Arbitrary Client Availability",
        2023,
        "booktitle = {AAAI Conference on Artificial Intelligence}",
    ),
    "lai2021oort": (
        "inproceedings",
        "Lai, Fan and Zhu, Xiangfeng and Madhyastha, Harsha V. and Chowdhury, Mosharaf",
        "{Oort}: Efficient Federated Learning via Guided Participant Selection",
        2021,
        "booktitle = {USENIX Symposium on Operating Systems Design and Implementation (OSDI)}",
    ),
    "abdelmoniem2023refl": (
        "inproceedings",
        "Abdelmoniem, Ahmed M. and Sahu, Atal Narayan and Canini, Marco and Fahmy, Suhaib A.",
        "{REFL}: Resource-Efficient Federated Learning",
        2023,
        "booktitle = {European Conference on Computer Systems (EuroSys)}",
    ),
    "chai2020tifl": (
        "inproceedings",
        "Chai, Zheng and Ali, Ahsan and Zawad, Syed and Truex, Stacey and Anwar, Ali and Baracaldo, Nathalie and "
        "Zhou, Yi and Ludwig, Heiko and Yan, Feng and Cheng, Yue",
        "{TiFL}: A Tier-based Federated Learning System",
        2020,
        "booktitle = {International Symposium on High-Performance Parallel and Distributed Computing (HPDC)}",
    ),
    "balakrishnan2022diverse": (
        "inproceedings",
        "Balakrishnan, Ravikumar and Li, Tian and Zhou, Tianyi and Himayat, Nageen and Smith, Virginia and "
        "Bilmes, Jeffrey",
        "Diverse Client Selection for Federated Learning via Submodular Maximization",
        2022,
        "booktitle = {International Conference on Learning Representations (ICLR)}",
    ),
    "fraboni2021clustered": (
        "inproceedings",
        "Fraboni, Yann and Vidal, Richard and Kameni, Laetitia and Lorenzi, Marco",
        "Clustered Sampling: Low-Variance and Improved Representativity for Clients Selection in Federated Learning",
        2021,
        "booktitle = {International Conference on Machine Learning (ICML)}",
    ),
    "ribero2023federated": (
        "article",
        "Ribero, M{\\'o}nica and Vikalo, Haris and {de Veciana}, Gustavo",
        "Federated Learning Under Intermittent Client Availability and Time-Varying Communication Constraints",
        2023,
        "journal = {IEEE Journal of Selected Topics in Signal Processing},\n  doi = {10.1109/JSTSP.2022.3224590}",
    ),
    "chen2022optimal": (
        "article",
        "Chen, Wenlin and Horv{\\'a}th, Samuel and Richt{\\'a}rik, Peter",
        "Optimal Client Sampling for Federated Learning",
        2022,
        "journal = {Transactions on Machine Learning Research}",
    ),
    "chen2024heterogeneity": (
        "inproceedings",
        "Chen, Huancheng and Vikalo, Haris",
        "Heterogeneity-Guided Client Sampling: Towards Fast and Efficient Non-{IID} Federated Learning",
        2024,
        "booktitle = {Advances in Neural Information Processing Systems (NeurIPS)}",
    ),
    "kairouz2021practical": (
        "inproceedings",
        "Kairouz, Peter and McMahan, Brendan and Song, Shuang and Thakkar, Om and Thakurta, Abhradeep and Xu, Zheng",
        "Practical and Private (Deep) Learning Without Sampling or Shuffling",
        2021,
        "booktitle = {International Conference on Machine Learning (ICML)}",
    ),
    "bonawitz2019towards": (
        "inproceedings",
        "Bonawitz, Keith and Eichner, Hubert and Grieskamp, Wolfgang and Huba, Dzmitry and Ingerman, Alex and "
        "Ivanov, Vladimir and Kiddon, Chlo{\\'e} and Kone{\\v{c}}n{\\'y}, Jakub and Mazzocchi, Stefano and "
        "McMahan, Brendan and {Van Overveldt}, Timon and Petrou, David and Ramage, Daniel and Roselander, Jason",
        "Towards Federated Learning at Scale: System Design",
        2019,
        "booktitle = {Machine Learning and Systems (MLSys)}",
    ),
    "tang2022fedcor": (
        "inproceedings",
        "Tang, Minxue and Ning, Xuefei and Wang, Yitu and Sun, Jingwei and Wang, Yu and Li, Hai and Chen, Yiran",
        "{FedCor}: Correlation-Based Active Client Selection Strategy for Heterogeneous Federated Learning",
        2022,
        "booktitle = {IEEE/CVF Conference on Computer Vision and Pattern Recognition (CVPR)}",
    ),
    "singhal2024greedy": (
        "article",
        "Singhal, Pranava and Pandey, Shashi Raj and Popovski, Petar",
        "Greedy {Shapley} Client Selection for Communication-Efficient Federated Learning",
        2024,
        "journal = {IEEE Networking Letters}",
    ),
    "nagalapatti2021game": (
        "inproceedings",
        "Nagalapatti, Lokesh and Narayanam, Ramasuri",
        "Game of Gradients: Mitigating Irrelevant Clients in Federated Learning",
        2021,
        "booktitle = {AAAI Conference on Artificial Intelligence}",
    ),
    "xiao2017fashion": (
        "article",
        "Xiao, Han and Rasul, Kashif and Vollgraf, Roland",
        "Fashion-{MNIST}: a Novel Image Dataset for Benchmarking Machine Learning Algorithms",
        2017,
        "journal = {arXiv preprint arXiv:1708.07747}",
    ),
    "krizhevsky2009learning": (
        "techreport",
        "Krizhevsky, Alex",
        "Learning Multiple Layers of Features from Tiny Images",
        2009,
        "institution = {University of Toronto}",
    ),
    "lecun1998gradient": (
        "article",
        "LeCun, Yann and Bottou, L{\\'e}on and Bengio, Yoshua and Haffner, Patrick",
        "Gradient-Based Learning Applied to Document Recognition",
        1998,
        "journal = {Proceedings of the IEEE}",
    ),
    "cohen2017emnist": (
        "article",
        "Cohen, Gregory and Afshar, Saeed and Tapson, Jonathan and {van Schaik}, Andr{\\'e}",
        "{EMNIST}: an Extension of {MNIST} to Handwritten Letters",
        2017,
        "journal = {arXiv preprint arXiv:1702.05373}",
    ),
    "fedpick": (
        "misc",
        "{The fedpick authors}",
        "{fedpick}: client selection for federated learning",
        0,
        f"note = {{Version {__version__}}}",
    ),
}

# By class name of a policy.
POLICIES = {
    "Uniform": ("mcmahan2017communication",),
    "SizeWeighted": ("li2020federated",),
    "FixedProbabilities": ("huang2021efficiency",),
    "FedCS": ("nishio2019client",),
    "PowerOfChoice": ("cho2020client",),
    "ActiveFL": ("goetz2019active",),
    "E3CS": ("huang2022stochastic",),
    "CSUCB": ("xia2020multi",),
    "BSFL": ("benami2023client",),
    "Genie": ("benami2023client",),
    "RBCSF": ("huang2021efficiency",),
    "FedGS": ("wang2023fedgs",),
    "Oort": ("lai2021oort",),
    "REFL": ("abdelmoniem2023refl",),
    "TiFL": ("chai2020tifl",),
    "DivFL": ("balakrishnan2022diverse",),
    "Clustered": ("fraboni2021clustered",),
    "F3AST": ("ribero2023federated",),
    "OptimalSampling": ("chen2022optimal",),
    "HiCS": ("chen2024heterogeneity",),
    "MinSeparation": ("kairouz2021practical",),
    "OverSelect": ("bonawitz2019towards",),
    "FedCor": ("tang2022fedcor",),
    "GreedyFed": ("singhal2024greedy",),
    "SFedAvg": ("nagalapatti2021game",),
}
OURS = ("Guard",)  # of no paper
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


def cited_policies(text: str) -> list[str]:
    """Keys for the policies that a text names, also inside of another: over-select(e3cs(quota=0.5), 1.3).

    >>> cited_policies("over-select(e3cs(quota=0.5), 1.3)")
    ['bonawitz2019towards', 'huang2022stochastic']
    """
    from fedpick.policies.text import policy_names

    makers = {name: getattr(maker, "func", maker).__name__ for name, maker in policy_names().items()}
    found: dict[str, None] = {}
    for word in re.findall(r"(?<![:\w.-])[A-Za-z][\w-]*", text):
        name = next((made for given, made in makers.items() if bare_name(given) == bare_name(word)), word)
        found |= dict.fromkeys(POLICIES.get(name, ()))
    return list(found)


def keys_of(text: str | None, known: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Keys for a world or a data set, whose text may have settings and a suffix.

    >>> keys_of("fedgs-ymf(num_clients=50)", WORLDS), keys_of("digits", DATA)
    (['wang2023fedgs'], [])
    """
    name = re.split(r"[(,]", text or "")[0].strip()
    return list(known.get(name) or known.get(name.split("-")[0], ()))


def bibtex(keys: list[str]) -> str:
    """The entries of these keys, each once."""
    made = []
    for key in dict.fromkeys(keys):
        kind, authors, title, year, where = _PAPERS[key]
        lines = [f"  author = {{{authors}}}", f"  title = {{{title}}}", f"  {where}"]
        lines += [f"  year = {{{year}}}"] if year else []
        made.append(f"@{kind}{{{key},\n" + ",\n".join(lines) + "\n}\n")
    return "\n".join(made)
