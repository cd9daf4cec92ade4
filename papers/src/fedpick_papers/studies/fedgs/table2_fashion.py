"""FedGS, Table 2, on Fashion-MNIST."""

from fedpick_papers.studies.fedgs._images import study

__all__ = ["STUDY"]

# IDL, YMF, YC.
PRINTED = {
    "UniformSample": (0.315, 0.331, 0.333),
    "MDSample": (0.315, 0.333, 0.338),
    "Power-of-Choice": (0.345, 0.326, 0.311),
    "FedProx": (0.315, 0.331, 0.374),
    "FedGS(0)": (0.302, 0.310, 0.324),
    "FedGS(0.5)": (0.299, 0.312, 0.312),
    "FedGS(1)": (0.300, 0.308, 0.310),
    "FedGS(2)": (0.310, 0.303, 0.312),
    "FedGS(5)": (0.307, 0.303, 0.307),
}
STUDY = study(
    "fashion-mnist",
    "labels-per-client(labels=2)",
    "cnn(channels=(32, 64), hidden=(512,))",
    "mlp(hidden=(16,))",
    0.1,
    {"IDL": 0.0, "YMF": 0.9, "YC": 0.9},
    PRINTED,
    held="each with two labels and as much data",
    network="a network with convolutions of 32 and 64 channels and a hidden layer of 512",
)
