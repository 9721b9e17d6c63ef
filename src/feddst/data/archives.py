"""Reading tar archives in memory: nothing is extracted to disk, and no read is larger than allowed."""

import bz2
import gzip
import lzma
import tarfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, cast

from feddst.errors import DataError


def members(path: Path, wanted: Callable[[str], bool], largest: int) -> Iterator[tuple[str, bytes]]:
    """Name and content of each regular file that `wanted` accepts, in the order of the archive.

    A wanted file of more than `largest` bytes, and a damaged or cut archive, raise `DataError`.
    """
    try:
        with _open(path) as raw:
            stream = _Guarded(raw, largest)
            with tarfile.open(fileobj=cast(IO[bytes], stream), mode="r:") as tar:
                yield from _members(tar, path, wanted, largest)
            if stream.last != bytes(tarfile.BLOCKSIZE):
                raise DataError(f"{path}: the archive is cut off")
            while raw.read(1 << 20):  # the checksum of a compressed file stands at its very end
                pass
    except (tarfile.TarError, lzma.LZMAError, zlib.error, OSError, EOFError) as error:
        raise DataError(f"{path}: cannot be read as a tar archive ({error})") from None


def _members(
    tar: tarfile.TarFile, path: Path, wanted: Callable[[str], bool], largest: int
) -> Iterator[tuple[str, bytes]]:
    while (member := tar.next()) is not None:
        name = member.name.removeprefix("./")
        if member.isreg() and wanted(name):
            if member.size > largest:
                raise DataError(f"{path}: {name} has {member.size} bytes, more than the {largest} allowed")
            content = tar.extractfile(member)
            assert content is not None
            yield name, content.read()
        tar.members.clear()  # type: ignore[attr-defined]  # or tarfile keeps every header it has seen


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
    """A stream that refuses large reads (a header may claim any length) and remembers its last one."""

    def __init__(self, raw: IO[bytes], largest: int) -> None:
        self._raw = raw
        self._largest = max(largest, tarfile.RECORDSIZE)
        self.last = b""

    def read(self, size: int) -> bytes:
        if size > self._largest + tarfile.BLOCKSIZE:
            raise OSError(f"a header claims {size} bytes")
        self.last = self._raw.read(size)
        return self.last

    def seek(self, position: int) -> int:
        return self._raw.seek(position)

    def tell(self) -> int:
        return self._raw.tell()
