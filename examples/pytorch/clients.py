"""Data as you have it, in place of `mine.py:data`: a data set of PyTorch for each client, or a partitioner.

    fedpick compare -p uniform -p oort --data examples/pytorch/clients.py:sites --model examples/pytorch/mine.py:Net

`pip install flwr-datasets` brings what `partitions` needs.
"""

import torch
from sklearn.datasets import load_digits
from torch.utils.data import TensorDataset, random_split

import fedpick as fp


def sites(num_clients):
    """A `torch.utils.data.Dataset` for each client."""
    x, y = load_digits(return_X_y=True)
    whole = TensorDataset(torch.tensor(x, dtype=torch.float32).view(-1, 1, 8, 8) / 16, torch.tensor(y))
    each = 1500 // num_clients
    sizes = [each] * num_clients + [len(whole) - each * num_clients]
    *parts, test = random_split(whole, sizes, torch.Generator().manual_seed(0))
    return fp.data.read(parts, test=test)


def partitions(num_clients):
    """A data set of Hugging Face, divided by flwr-datasets."""
    from datasets import Dataset
    from flwr_datasets.partitioner import DirichletPartitioner

    x, y = load_digits(return_X_y=True)
    whole = Dataset.from_dict({"image": x.reshape(-1, 8, 8, 1).astype("float32") / 16, "label": y})
    partitioner = DirichletPartitioner(num_clients, "label", alpha=0.5, min_partition_size=2)
    partitioner.dataset = whole.select(range(1500))
    return fp.data.read(partitioner, test=whole.select(range(1500, 1797)))
