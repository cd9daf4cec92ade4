"""Functions that Numba compiles when they are first called.

Importing Numba takes longer than everything else of `import fedpick`, and many commands call no compiled function.
"""

import contextlib
import functools
import os
from collections.abc import Callable, Collection
from typing import Any, Generic, ParamSpec, TypeVar

__all__ = ["Native", "native"]

PATIENCE = 60.0  # seconds to wait for another process

P = ParamSpec("P")
R = TypeVar("R")


class Native(Generic[P, R]):
    """A function that is compiled at its first call; compiled code is cached beside the source file if possible.

    Args:
        function: to be compiled by Numba.
        nogil: whether other threads may run meanwhile.
        fastmath: LLVM's fast-math flags, by name.
        forceinline: whether it becomes a part of every compiled function that calls it. With flags that let sums be
            reordered, two copies of a function may differ in the last bits, and which copy is called depends on
            whether this process compiled it or loaded it.
    """

    def __init__(
        self,
        function: Callable[P, R],
        nogil: bool = False,
        fastmath: Collection[str] = (),
        forceinline: bool = False,
    ) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.options: dict[str, Any] = {"nogil": nogil, "fastmath": set(fastmath), "forceinline": forceinline}

    @functools.cached_property
    def compiled(self) -> Any:
        """Numba's form of the function."""
        from numba import njit  # here, because it loads slowly

        try:
            return njit(cache=True, **self.options)(self.function)
        except RuntimeError:  # neither the source's folder nor the user's cache folder can be written to
            return njit(**self.options)(self.function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the compiled function."""
        if not self.compiled.signatures and not kwargs:
            self._compile_once(args)
        result: R = self.compiled(*args, **kwargs)
        return result

    def _compile_once(self, args: tuple[Any, ...]) -> None:
        """Compile for arguments of these types; if another process is compiling the same, wait for its code."""
        from numba import typeof

        kinds: Any = typeof
        try:
            from filelock import FileLock  # comes with the extras that start processes

            folder, name = self.compiled.stats.cache_path, f"{self.function.__qualname__}.lock"
            with FileLock(os.path.join(folder, name), timeout=PATIENCE) if folder else contextlib.nullcontext():
                self.compiled.compile(tuple(kinds(arg) for arg in args))
        except (ImportError, OSError, ValueError):  # then the call compiles it; TimeoutError is an OSError
            return

    @property
    def _numba_type_(self) -> Any:
        """Numba's type of the function, needed where another compiled function calls it."""
        return self.compiled._numba_type_


def native(function: Callable[P, R]) -> Native[P, R]:
    """Let Numba compile this function at its first call.

    >>> @native
    ... def double(x: float) -> float:
    ...     return 2.0 * x
    >>> double.__name__, double.function(1.5)
    ('double', 3.0)
    """
    return Native(function)
