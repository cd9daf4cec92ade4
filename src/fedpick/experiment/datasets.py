"""The data of a plan: from a text, from settings, or from objects, which are read here and named by what they hold."""

import re
from collections.abc import Mapping
from typing import Any

from fedpick._support.text import make
from fedpick.core.errors import ConfigError, bare_name
from fedpick.data.federated import Dataset
from fedpick.data.objects import is_data, read
from fedpick.data.tables import COLUMNS
from fedpick.experiment.identity import fingerprint

__all__ = ["data_settings"]


def data_settings(value: Any) -> dict[str, Any] | None:
    """Settings of [data] from what a user gives: a text, settings, or an object; None for no training.

    >>> data_settings("mine.parquet(client='site', hold_out=0.1)")
    {'name': 'mine.parquet', 'client': 'site', 'hold_out': 0.1}
    """
    if value is None or (isinstance(value, str) and bare_name(value) == "none"):
        return None
    if isinstance(value, str):
        return _of_file(value)
    if is_data(value):
        return _made_data({"name": value})
    if isinstance(value, int | float):
        raise ConfigError(f"data = {value!r}, but must be a text such as 'digits', or data sets of clients")
    if not isinstance(value, Mapping):
        read(value)  # says what data may be
    return _made_data(value)


def _of_file(text: str) -> dict[str, Any]:
    """Settings of [data] from a text: of a file they may follow in brackets, "mine.parquet(client='site')"."""
    file = re.fullmatch(r"(.+\.(?:npz|parquet))\((.*)\)", text.strip(), flags=re.DOTALL)
    if file is None:
        return {"name": text}
    example = "mine.parquet(client='site')"
    settings = make(f"file({file[2]})", "data", {"file": _settings}, values={}, example=example)
    return {"name": file[1], **{key: value for key, value in settings.items() if value is not None}}


def _settings(
    client: Any = None, label: Any = None, inputs: Any = None, partition: Any = None, hold_out: Any = None,
    test: Any = None, seed: Any = None,
) -> dict[str, Any]:  # fmt: skip
    """What may follow a file in brackets."""
    return dict(locals())


def _made_data(given: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of [data]; objects in them are read, and named by what they hold."""
    found = dict(given)
    data, test = found.get("name"), found.get("test")
    if "made" in found or (isinstance(data, str) and (test is None or isinstance(test, str))):
        return found
    columns = {key: found.pop(key) for key in COLUMNS if key in found}
    test = None if isinstance(test, str) else found.pop("test", None)
    made = read(data, **columns, test=test)
    name = made.name if isinstance(made, Dataset) else made.dataset.name
    return {**found, "name": f"{name}-{fingerprint(made)}", "made": made}
