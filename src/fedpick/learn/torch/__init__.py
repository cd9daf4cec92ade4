"""Training with PyTorch: any `torch.nn.Module`, clients one after another (needs the extra `torch`)."""

from fedpick.core.errors import MissingError

__all__ = ["check_version"]

OLDEST = (2, 4)  # version that is supported


def check_version(version: str) -> None:
    """Raise unless this version of PyTorch is supported."""
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST:
        raise MissingError(
            f"PyTorch {version} is installed, but fedpick needs {OLDEST[0]}.{OLDEST[1]} or newer: pip install -U torch"
        )
