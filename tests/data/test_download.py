"""Downloads, from a server on this machine."""

import hashlib
import http.server
import socket
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from feddst.data import cifar, download
from feddst.errors import DataError

CONTENT = b"some archive" * 1000
MD5 = hashlib.md5(CONTENT).hexdigest()


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments: Any) -> None:
        pass


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a folder that holds `x.tar.gz`."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "x.tar.gz").write_bytes(CONTENT)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=tmp_path / "site")) as server:
        thread = threading.Thread(target=partial(server.serve_forever, 0.01))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_file_is_fetched(site: str, tmp_path: Path) -> None:
    path = download.fetch(f"{site}/x.tar.gz", tmp_path / "new" / "root", MD5)
    assert path == tmp_path / "new" / "root" / "x.tar.gz"
    assert path.read_bytes() == CONTENT


def test_a_wrong_checksum_is_refused_and_not_kept(site: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"refused http.*x\.tar\.gz: its md5 is not 0000") as refused:
        download.fetch(f"{site}/x.tar.gz", tmp_path / "root", "0" * 32)
    assert "\n" not in str(refused.value)
    assert list((tmp_path / "root").iterdir()) == []


def test_a_failure_says_where_to_put_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as briefly:
        nobody = f"http://127.0.0.1:{briefly.getsockname()[1]}"
    with pytest.raises(DataError) as refused:
        download.fetch(f"{nobody}/y.tar.gz", tmp_path, MD5)
    assert str(refused.value) == (
        f"cannot download {nobody}/y.tar.gz (ConnectionError); put y.tar.gz into {tmp_path} by hand, "
        "or set data.root or FEDDST_DATA to where it is"
    )


def test_a_missing_library_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(DataError, match="pooch is not installed; put x into"):
        download.fetch("http://127.0.0.1/x", tmp_path, MD5)


def test_cifar_is_fetched_where_nothing_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def fetch(url: str, folder: Path, md5: str) -> Path:
        asked.append((url, folder, md5))
        raise DataError("no net")

    monkeypatch.setattr(cifar, "fetch", fetch)
    for kind in (cifar.CIFAR10, cifar.CIFAR100):
        with pytest.raises(DataError, match="no net"):
            cifar.load_cifar(kind, tmp_path)
    site = "https://www.cs.toronto.edu/~kriz/"
    assert asked == [
        (site + "cifar-10-python.tar.gz", tmp_path, "c58f30108f718f92721af3b95e74349a"),
        (site + "cifar-100-python.tar.gz", tmp_path, "eb9058c3a382ffc7106e4002c42a8d85"),
    ]
