"""Asynchronous training beside rounds: FedBuff's, Papaya's and FedAsync's claims, and where asynchrony hurts."""

__all__: list[str] = []  # each module has a STUDY
