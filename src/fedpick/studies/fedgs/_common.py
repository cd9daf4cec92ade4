"""Shared by the figure and the table of FedGS."""

__all__ = ["PAPER"]

PAPER = "Wang et al. (2023), FedGS: Federated Graph-Based Sampling with Arbitrary Client Availability, AAAI"
