"""Shared by the figures of E3CS."""

__all__ = ["BASE", "PAPER", "SCHEMES"]

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
BASE = {
    "clients": 100,
    "cohort_size": 20,
    "rounds": 2500,
    "seeds": 10,
    "success_rates": [0.1, 0.3, 0.6, 0.9],  # of the four equal classes: those of the world "e3cs"
}
