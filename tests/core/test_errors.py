"""Names, however they are written, and messages that give the value, the bound and the fix."""

import pytest

from fedpick.core import errors


@pytest.mark.parametrize("written", ["rbcs-f", "RBCS-F", "rbcs_f", "RBCSF", " rbcs f "])
def test_a_name_is_found_however_it_is_written(written):
    assert errors.find_name(written, {"e3cs": 1, "rbcs-f": 2}, "policy") == 2


def test_an_unknown_name_says_what_there_is_and_the_nearest():
    with pytest.raises(errors.UnknownNameError) as caught:
        errors.find_name("e3sc", {"uniform": 1, "e3cs": 2}, "policy")
    assert str(caught.value) == "unknown policy 'e3sc'; did you mean 'e3cs'? There are: e3cs, uniform"
    with pytest.raises(errors.UnknownNameError, match=r"^unknown policy 'zzzzzz'\. There are: e3cs, uniform$"):
        errors.find_name("zzzzzz", {"uniform": 1, "e3cs": 2}, "policy")


def test_a_requirement_gives_the_value_the_bound_and_the_fix():
    errors.require(True, "m", 1, ">= 1")
    with pytest.raises(errors.SettingError, match=r"^m = 0, but must be >= 1; take one client$"):
        errors.require(False, "m", 0, ">= 1", "take one client")
    with pytest.raises(errors.SettingError, match=r"^m = 'two', but must be >= 1$"):
        errors.require(False, "m", "two", ">= 1")


def test_every_error_is_a_fedpick_error():
    kinds = [getattr(errors, name) for name in errors.__all__ if name.endswith("Error")]
    assert len(kinds) > 5
    assert all(issubclass(kind, errors.FedpickError) for kind in kinds)
    assert all(kind.__name__ in errors.__doc__ for kind in kinds), "the tree in the docstring shows each"
