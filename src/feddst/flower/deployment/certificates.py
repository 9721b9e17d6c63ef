"""The certificates and keys of a federation: a CA, a server certificate, and a key pair for each SuperNode."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from feddst.flower.deployment.private import make_private

LOOPBACK = ("127.0.0.1", "localhost")
DAYS = 30
"""How long a certificate is valid by default: long enough for a federation of an afternoon."""


@dataclass(frozen=True)
class Certificates:
    """The files of a server: the CA that clients trust, and the server's certificate and private key."""

    authority: Path
    certificate: Path
    key: Path


@dataclass(frozen=True)
class NodeKey:
    """The files of a SuperNode's key pair, in OpenSSH's formats."""

    private: Path
    public: Path


def make_certificates(folder: Path, hosts: Sequence[str] = LOOPBACK, days: int = DAYS) -> Certificates:
    """Write a new CA and a server certificate for `hosts`, which are names or addresses. The CA's key is not kept."""
    make_private(folder)
    files = Certificates(folder / "ca.pem", folder / "server.pem", folder / "server.key")
    ca_key, key = _new_key(), _new_key()
    ca_name, name = _name("feddst CA"), _name(hosts[0])
    ca = (
        _builder(ca_name, ca_name, ca_key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA384())
    )
    certificate = (
        _builder(name, ca_name, key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_general(host) for host in hosts]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA384())
    )
    files.authority.write_bytes(ca.public_bytes(serialization.Encoding.PEM))
    files.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    _write_private(files.key, key, serialization.PrivateFormat.PKCS8)
    return files


def make_node_key(folder: Path, name: str) -> NodeKey:
    """Write a new ECDSA P-384 key pair: `name` is private, `name.pub` is what the SuperLink's owner registers."""
    make_private(folder)
    files = NodeKey(folder / name, folder / f"{name}.pub")
    key = _new_key()
    _write_private(files.private, key, serialization.PrivateFormat.OpenSSH)
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    files.public.write_bytes(public + b"\n")
    return files


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP384R1())


def _builder(
    subject: x509.Name, issuer: x509.Name, public: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))  # clocks differ
        .not_valid_after(now + timedelta(days=days))
    )


def _usage(signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _general(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write_private(path: Path, key: ec.EllipticCurvePrivateKey, form: serialization.PrivateFormat) -> None:
    """Readable by the owner only, from the first byte on."""
    path.unlink(missing_ok=True)
    pem = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(pem)
