"""Policies in frameworks for federated learning: `flower` and `nvflare`, on what all adapters share.

`quorum` waits for clients, `presence` recognises them, `arrivals` polls for their replies, `updates` checks these;
`round` and `aggregation` put the framework's averaging between a session's answers and its model; `valuation` computes
what updates are worth. Users import `fedpick.flower` and `fedpick.nvflare`.
"""

__all__: list[str] = []
