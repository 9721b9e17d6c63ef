"""Reads tar archives in memory: nothing is extracted to disk, and each read and their sum are limited."""

import bz2
import gzip
import lzma
import tarfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, cast

from feddst.errors import DataError

ALWAYS_ALLOWED = 1 << 30
EXPANSION = 100


def most_unpacked(packed: int) -> int:
    """How many bytes `packed` bytes on disk may become; more would not be images, but an attack."""
    return max(ALWAYS_ALLOWED, EXPANSION * packed)


def members(path: Path, wanted: Callable[[str], bool], largest: int) -> Iterator[tuple[str, bytes]]:
    """Name and content of each regular file that `wanted` accepts, in the order of the archive.

    A wanted file of more than `largest` bytes, an archive that unpacks to far more than its own size, and a damaged or
    cut one, raise `DataError`.
    """
    try:
        with _open(path) as raw:
            stream = _Guarded(raw, path, largest)
            with tarfile.open(fileobj=cast(IO[bytes], stream), mode="r:") as tar:
                yield from _members(tar, path, wanted, largest)
            if stream.last != bytes(tarfile.BLOCKSIZE):
                raise DataError(f"{path}: the archive is cut off")
            while stream.read(tarfile.RECORDSIZE):  # a compressed file ends with its checksum
                pass
    except (tarfile.TarError, lzma.LZMAError, zlib.error, OSError, EOFError) as error:
        raise DataError(f"{path}: cannot be read as a tar archive ({error})") from None


def _members(
    tar: tarfile.TarFile, path: Path, wanted: Callable[[str], bool], largest: int
) -> Iterator[tuple[str, bytes]]:
    left = most_unpacked(path.stat().st_size)  # sparse files take space in memory, not in an archive
    while (member := tar.next()) is not None:
        name = member.name.removeprefix("./")
        if member.isreg() and wanted(name):
            if member.size > largest:
                raise DataError(f"{path}: {name} has {member.size} bytes, more than the {largest} allowed")
            left -= member.size
            if left < 0:
                raise _too_much(path)
            content = tar.extractfile(member)
            assert content is not None
            yield name, content.read()
        tar.members.clear()  # type: ignore[attr-defined]  # otherwise tarfile keeps every header


def _open(path: Path) -> IO[bytes]:
    with path.open("rb") as file:
        head = file.read(6)
    if head.startswith(b"\x1f\x8b"):
        return cast(IO[bytes], gzip.GzipFile(path))
    if head.startswith(b"BZh"):
        return bz2.BZ2File(path)
    if head == b"\xfd7zXZ\x00":
        return lzma.LZMAFile(path)
    return path.open("rb")


class _Guarded:
    """A stream that refuses large reads (a header may claim any length), counts them, and remembers its last one."""

    def __init__(self, raw: IO[bytes], path: Path, largest: int) -> None:
        self._raw = raw
        self._path = path
        self._largest = max(largest, tarfile.RECORDSIZE)
        self._end = most_unpacked(path.stat().st_size)
        self.last = b""

    def read(self, size: int) -> bytes:
        if size > self._largest + tarfile.BLOCKSIZE:
            raise OSError(f"a header claims {size} bytes")
        self._refuse_beyond(self._raw.tell() + size)
        self.last = self._raw.read(size)
        return self.last

    def seek(self, position: int) -> int:
        self._refuse_beyond(position)  # going forward means unpacking what lies between
        return self._raw.seek(position)

    def tell(self) -> int:
        return self._raw.tell()

    def _refuse_beyond(self, position: int) -> None:
        if position > self._end + tarfile.RECORDSIZE:
            raise _too_much(self._path)


def _too_much(path: Path) -> DataError:
    packed = path.stat().st_size
    return DataError(f"{path}: {packed} bytes unpack to more than the {most_unpacked(packed)} allowed")
