"""Shared by the figures of E3CS."""

from dataclasses import replace
from typing import Any

from fedpick.experiment import Config
from fedpick_papers.studies._runs import Played, play_scheme, scheme_item
from fedpick_papers.studies._study import Found, Item, Measurement, Settings, seeds_of

__all__ = ["ABOUT", "BASE", "LOOKS", "LOSS", "PAPER", "SCHEMES", "TRAINING", "drawn", "item_of", "play", "runs_of"]

PAPER = (
    "Huang, Lin, Shen, Li & Zomaya (2022), Stochastic Client Selection for Federated Learning with Volatile Clients, "
    "IEEE Internet of Things Journal"
)
SCHEMES = {
    "FedCS": "fedcs",
    "E3CS-0": "e3cs(quota=0.0, learning_rate=0.5)",
    "E3CS-0.5": "e3cs(quota=0.5, learning_rate=0.5)",
    "E3CS-0.8": "e3cs(quota=0.8, learning_rate=0.5)",
    "E3CS-inc": "e3cs(quota='inc', learning_rate=0.5, horizon={rounds})",
    "Random": "uniform",
}
BASE: dict[str, Any] = {
    "clients": 100,
    "cohort_size": 20,
    "rounds": 2500,
    "seeds": 10,
    "success_rates": [0.1, 0.3, 0.6, 0.9],  # of the four equal classes: those of the world "e3cs"
}
LOSS = {"pow-d": "pow-d(candidates=40)"}  # ranks clients by their loss, so that it needs training
# A scheme has the same colour in all figures of the paper.
LOOKS = {name: i for i, name in enumerate((*SCHEMES, *LOSS))}
TRAINING = {
    "data": {"name": "fashion-mnist", "partition": "primary-label(share=0.8, size=500)"},
    "train": {"model": "logistic", "lr": 0.01, "batch": 40, "steps": 10, "evaluate_every": 100_000, "spread_every": 0},
}
ABOUT = (
    "Section VI-B1: 100 clients in four classes that return their model with probability 0.1, 0.3, 0.6 and 0.9; 20 are "
    "chosen a round. Nothing is trained, except for pow-d, which needs losses: there, logistic regression on "
    "Fashion-MNIST with one primary label a client (our choice, as is d = 40). E3CS is judged with the "
    "paper's own sampler, multinomialNR (changed on 2026-11-19, after the run: it was judged with an exact design, "
    "which is among the extensions)"
)


def drawn(policy: str) -> str:
    """The policy with the paper's own sampler."""
    return policy.replace("e3cs(", "e3cs(sampler='multinomial', ")


def item_of(settings: Settings, world: str, policy: str, seed: int) -> dict[str, Any]:
    """The item of a scheme; one that ranks by loss has training."""
    item = scheme_item(settings, world, policy, seed)
    return {**item, **settings["training"]} if policy in LOSS.values() else item


def runs_of(settings: Settings, found: Found, world: str, policy: str) -> list[Measurement]:
    """The measurements of a scheme in a world, for each seed."""
    return [found[item_of(settings, world, policy, seed)] for seed in seeds_of(settings)]


def _config(item: Item) -> Config:
    plain = play_scheme.config(item)
    if "data" not in item:
        return plain
    return replace(plain, data={**item["data"], "seed": item["seed"]}, train=dict(item["train"]))


play = Played(_config, play_scheme.read)
