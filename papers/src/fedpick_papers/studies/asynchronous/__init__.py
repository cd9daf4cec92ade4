"""Asynchronous training beside rounds: claims of FedBuff, Papaya, FedAsync and Pisces, and where asynchrony hurts."""

__all__: list[str] = []  # each module has a STUDY
