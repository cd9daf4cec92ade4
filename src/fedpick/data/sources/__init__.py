"""The real data sets, and where each comes from.

A data set is looked for in this order:

1. the user's cache folder (see `cache.cache_folder`): NAME.npz, or the official files in a folder NAME, put there by
   hand;
2. its official address, or a mirror of it, with its checksum;
3. a package of an ordinary package manager, if that tool is on the machine.

However it came, it is checked (shapes, examples of each class, and the digest of all pixels and labels where known) and
then kept as one NAME.npz in the cache. Each load checks that file's checksums, shapes and classes again.
"""

from fedpick.data.sources.catalogue import SOURCES, File, Package, Source, find
from fedpick.data.sources.loader import CacheEntry, cached, fetch, load

__all__ = ["SOURCES", "CacheEntry", "File", "Package", "Source", "cached", "fetch", "find", "load"]
