"""Disks that fail: at the nth change, or by a power cut that keeps only what was waited for, in any order.

Everything that fedpick does to a disk passes through `os` and `fedpick._support.atomic.opened`, which these replace.
"""

import errno
import os
import random
from contextlib import contextmanager
from pathlib import Path

import pytest

from fedpick._support import atomic

SECTOR = 512  # bytes, which a disk writes whole or not at all


class _Watched:
    """An open file, each write of which is told."""

    def __init__(self, file, tell):
        self._file, self._tell = file, tell

    def write(self, data):
        self._tell()
        return self._file.write(data)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self._file.close()

    def __getattr__(self, name):
        return getattr(self._file, name)


class Faults:
    """Every creation, write, fsync, rename, removal and new folder is counted; from the nth on, or at it, they fail.

    Args:
        nth: the first that fails; 0: none.
        times: how many fail.
    """

    def __init__(self, nth=0, times=1, number=errno.ENOSPC):
        self.nth, self.times, self.number, self.seen = nth, times, number, []

    def _tell(self, what):
        self.seen.append(what)
        if self.nth and self.nth <= len(self.seen) < self.nth + self.times:
            raise OSError(self.number, os.strerror(self.number))

    @contextmanager
    def here(self):
        real = {name: getattr(os, name) for name in ("open", "fsync", "replace", "unlink", "mkdir")}
        opened = atomic.opened

        def open_(path, flags, *rest, **named):
            if flags & os.O_CREAT:
                self._tell(f"create {Path(path).name}")
            return real["open"](path, flags, *rest, **named)

        def change(name):
            def act(*args, **named):
                self._tell(name)
                return real[name](*args, **named)

            return act

        def watched(path, mode):
            self._tell("open")
            return _Watched(opened(path, mode), lambda: self._tell("write"))

        with pytest.MonkeyPatch.context() as patch:
            real["fsync"] = lambda handle: None  # the process lives on: nothing need be waited for
            patch.setattr(os, "open", open_)
            for name in ("fsync", "replace", "unlink", "mkdir"):
                patch.setattr(os, name, change(name))
            patch.setattr(atomic, "opened", watched)
            yield self


class PowerCut:
    """Remembers what of a folder would be there after a power cut at any moment.

    A file holds what it held when it was last waited for, or any part of what came after. A folder's names are those of
    when it was last waited for, and any of the changes since, whichever the disk was pleased to write first.

    Args:
        root: the folder; what is above it is on the disk.
        moment: called after each change, with the number of changes so far.
    """

    def __init__(self, root, moment):
        self.root, self.moment = Path(root), moment
        self.count = 0
        self.now = {}  # path -> file
        self.synced, self.last = {}, {}  # file -> what was waited for; what it was when its name went
        self.names = {self.root: {}}  # folder -> its names on the disk: a file, or "folder"
        self.pending = {self.root: []}  # folder -> changes of it since: [(name, file or "folder" or None), ...]
        self.fresh = 0

    def _inside(self, path):
        return Path(path).is_relative_to(self.root) if isinstance(path, str | Path) else False

    def _after(self):
        self.count += 1
        self.moment(self.count)

    @contextmanager
    def here(self):
        real = {name: getattr(os, name) for name in ("open", "fsync", "replace", "unlink", "mkdir")}
        opened = atomic.opened
        handles = {}

        def created(path):
            path = Path(path)
            if self._inside(path) and path not in self.now:
                self.fresh += 1
                self.now[path] = self.fresh
                self.pending[path.parent].append([(path.name, self.fresh)])

        def open_(path, flags, *rest, **named):
            handle = real["open"](path, flags, *rest, **named)
            if flags & os.O_CREAT:
                created(path)
            handles[handle] = Path(path) if isinstance(path, str | Path) else None
            return handle

        def fsync(handle):
            path = Path(os.readlink(f"/proc/self/fd/{handle}"))
            if path in self.pending:
                for change in self.pending[path]:
                    _apply(self.names[path], change)
                self.pending[path] = []
            elif path in self.now:
                self.synced[self.now[path]] = path.read_bytes()
            if self._inside(path):
                self._after()

        def replace(source, target):
            source, target = Path(source), Path(target)
            if not self._inside(target):
                return real["replace"](source, target)
            if target in self.now:
                self.last[self.now[target]] = target.read_bytes()
            real["replace"](source, target)
            file = self.now[target] = self.now.pop(source)
            self.pending[target.parent].append([(source.name, None), (target.name, file)])
            self._after()
            return None

        def unlink(path, *rest, **named):
            path = Path(path)
            if self._inside(path) and path in self.now:
                self.last[self.now[path]] = path.read_bytes()
                del self.now[path]
                self.pending[path.parent].append([(path.name, None)])
                real["unlink"](path, *rest, **named)
                self._after()
            else:
                real["unlink"](path, *rest, **named)

        def mkdir(path, *rest, **named):
            real["mkdir"](path, *rest, **named)
            path = Path(path)
            if self._inside(path):
                self.names[path], self.pending[path] = {}, []
                if path != self.root:
                    self.pending[path.parent].append([(path.name, "folder")])
                self._after()

        def watched(path, mode):
            file = opened(path, mode)
            created(path)
            return _Watched(file, lambda: None)

        with pytest.MonkeyPatch.context() as patch:
            for act in (fsync, replace, unlink, mkdir):
                patch.setattr(os, act.__name__, act)
            patch.setattr(os, "open", open_)
            patch.setattr(atomic, "opened", watched)
            yield self

    def survivor(self, target, rng: random.Random):
        """Write what a power cut leaves now to another folder; the disk decides by the random numbers."""
        self._write(self.root, Path(target), rng)

    def _write(self, folder, target, rng):
        target.mkdir(parents=True, exist_ok=True)
        names = dict(self.names[folder])
        for change in self.pending[folder]:
            if rng.random() < 0.5:
                _apply(names, change)
        paths = {file: path for path, file in self.now.items()}
        for name, file in names.items():
            if file == "folder":
                self._write(folder / name, target / name, rng)
                continue
            current = paths[file].read_bytes() if file in paths else self.last.get(file, b"")
            (target / name).write_bytes(self._content(file, current, rng))

    def _content(self, file, current, rng):
        before = self.synced.get(file, b"")
        if before == current:
            return current
        common = len(before) if current.startswith(before) else 0
        cut = rng.randint(common, len(current))
        written = max(common, cut - cut % SECTOR)  # a file grows before its sectors are written
        zeros = current[:written] + bytes(len(current) - written)
        return rng.choice([before, current, current[:cut], zeros, before + bytes(len(current) - common)])


def _apply(names, change):
    for name, file in change:
        if file is None:
            names.pop(name, None)
        else:
            names[name] = file
