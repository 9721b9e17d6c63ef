import socket
import ssl
import stat
import threading
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

from feddst.flower.deployment.certificates import Certificates, make_certificates, make_node_key


def shake_hands(server: Certificates, trusted: Path, name: str) -> None:
    """A TLS handshake between two threads, with all of OpenSSL's checks."""
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs.load_cert_chain(server.certificate, server.key)
    ours = ssl.create_default_context(cafile=trusted)
    here, there = socket.socketpair()

    def serve() -> None:
        try:
            theirs.wrap_socket(there, server_side=True).close()
        except ssl.SSLError:
            there.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        ours.wrap_socket(here, server_hostname=name).close()
    finally:
        here.close()
        thread.join()


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
def test_a_client_that_trusts_the_authority_accepts_the_server(tmp_path: Path, name: str) -> None:
    files = make_certificates(tmp_path)
    shake_hands(files, files.authority, name)


def test_the_server_has_the_names_that_were_asked_for_and_no_others(tmp_path: Path) -> None:
    files = make_certificates(tmp_path, ["10.0.0.7", "server.example"])
    shake_hands(files, files.authority, "10.0.0.7")
    shake_hands(files, files.authority, "server.example")
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(files, files.authority, "127.0.0.1")


def test_another_authority_does_not_vouch_for_the_server(tmp_path: Path) -> None:
    files, others = make_certificates(tmp_path / "one"), make_certificates(tmp_path / "other")
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(files, others.authority, "127.0.0.1")


def test_a_node_has_a_p384_pair_in_the_formats_of_openssh(tmp_path: Path) -> None:
    files = make_node_key(tmp_path, "node")
    private = load_ssh_private_key(files.private.read_bytes(), None)
    public = load_ssh_public_key(files.public.read_bytes())
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    assert isinstance(private.curve, ec.SECP384R1)
    assert private.public_key() == public


def test_private_keys_are_for_their_owner_only_also_when_made_again(tmp_path: Path) -> None:
    for _ in range(2):
        for path in (make_certificates(tmp_path).key, make_node_key(tmp_path, "node").private):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            path.chmod(0o644)
