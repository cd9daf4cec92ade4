"""FedGS's data-distribution-dependency graph (3DG): which clients have similar data, and how far apart they are.

Three steps: a **similarity** V in [0, 1] of each pair of clients (from features, model updates or embeddings; or from
dot products computed by the **secure** protocol, which reveals no vector); the graph `three_dg`, which has an edge
where V is large enough, shorter for larger V; and `shortest_paths`, the distances H with which FedGS chooses diverse
cohorts. `edge_scores` compares a graph with the true one.

Wang et al., FedGS: Federated Graph-based Sampling with Arbitrary Client Availability, AAAI 2023
(https://arxiv.org/abs/2211.13975), eq. (10)-(12).

>>> labels = [[9, 1, 0], [8, 2, 0], [0, 5, 5], [0, 0, 9]]  # examples of each label of the four clients
>>> distance = shortest_paths(three_dg(from_features(labels)))
>>> int(distance[0].argmax())  # the client that shares no label with client 0
3
"""

from fedpick.graph.paths import shortest_paths, three_dg, three_dg_from_vectors
from fedpick.graph.scores import EdgeScores, edge_scores
from fedpick.graph.secure import Transcript, secure_dot, secure_similarity
from fedpick.graph.similarity import (
    from_embeddings,
    from_features,
    from_updates,
    functional_embedding,
    noise,
    vectors_from_similarity,
)
from fedpick.graph.sketch import sketch

__all__ = ["shortest_paths", "three_dg", "three_dg_from_vectors"]
__all__ += ["from_embeddings", "from_features", "from_updates", "functional_embedding", "noise", "sketch"]
__all__ += ["Transcript", "secure_dot", "secure_similarity", "vectors_from_similarity"]
__all__ += ["EdgeScores", "edge_scores"]
