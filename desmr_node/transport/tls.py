"""Keys and certificates: who a node is, and how the others check it.

Keys are ECDSA P-256, since gRPC's BoringSSL takes no Ed25519. A certificate carries the node id twice, as
common name and as its only DNS name, and the network id as organisation. One authority issues them all.
"""

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal, Self

import grpc
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from desmr_node.errors import ConfigError, DesmrError
from desmr_node.transport.keyfiles import LARGEST_FILE as LARGEST_FILE
from desmr_node.transport.keyfiles import (
    UNPARSABLE,
    PrivateKey,
    read_certificates,
    read_key,
    refusal_to_overwrite,
)
from desmr_node.transport.keyfiles import certificate_pem as certificate_pem
from desmr_node.transport.keyfiles import private_pem as private_pem
from desmr_node.transport.keyfiles import write_private as write_private
from desmr_node.transport.keyfiles import write_public as write_public

PublicKey = ec.EllipticCurvePublicKey
Fault = Literal["malformed", "authority", "node", "network", "expired", "not-yet-valid"]

#: One lower-case DNS label: gRPC compares names without regard to case, and takes 10.0.0.1 for an address.
NODE_ID = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
#: The key also signs TLS handshakes; a prefix that no handshake starts with keeps the two uses apart.
SIGNED_RECORD = b"desmr-node signed record v1\0"
#: Certificates start a little in the past: members' clocks differ.
BACKDATED = timedelta(hours=1)
#: Ours have about 600 bytes; a peer may not make us parse a novel.
LARGEST_CERTIFICATE = 16_384

_USES = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)
_REMEDY: dict[Fault, str] = {
    "malformed": "have it issued again, with `desmr network init` or by whoever keeps ca.key",
    "authority": "use the ca.pem of the authority that issued it, or have it issued again",
    "node": "give this node its own certificate, or correct the node's id",
    "network": "use the certificate of this network, or correct the network's id",
    "expired": "have it issued again by whoever keeps ca.key",
    "not-yet-valid": "set this machine's clock, or wait",
}


class CertificateError(DesmrError):
    """A certificate that does not prove what it should; ``kind`` says in which respect."""

    def __init__(self, kind: Fault, text: str) -> None:
        super().__init__(text)
        self.kind = kind


@dataclass(frozen=True, slots=True, eq=False)
class Authority:
    """Whoever vouches for the members of one network: a key and its self-signed certificate."""

    network: str
    certificate: x509.Certificate
    key: PrivateKey = field(repr=False)

    @classmethod
    def create(cls, network: str, years: int = 10, *, now: datetime | None = None) -> Self:
        """A new authority; its path length of 0 means that nobody it vouches for can vouch for others."""
        now = now or datetime.now(UTC)
        key = new_key()
        # The spaces keep the authority's name apart from every node id.
        name = _name("desmr network authority", _network_id(network))
        own_id = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        certificate = (
            x509.CertificateBuilder(subject_name=name, issuer_name=name, public_key=key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - BACKDATED)
            .not_valid_after(now + timedelta(days=365.25 * years))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(authority=True), critical=True)
            .add_extension(own_id, critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own_id), critical=False
            )
            .sign(key, hashes.SHA256())
        )
        return cls(network, certificate, key)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read ca.key and ca.pem, as `save` wrote them."""
        certificate = read_certificates(Path(folder, "ca.pem"))[0]
        key = read_key(Path(folder, "ca.key"))
        organisations = _attributes(certificate.subject, NameOID.ORGANIZATION_NAME)
        if certificate.public_key() != key.public_key():
            raise ConfigError(f"{folder}: ca.key does not belong to ca.pem: restore the pair from one backup")
        if not _is_authority(certificate) or len(organisations) != 1:
            raise ConfigError(f"{folder}/ca.pem is not the certificate of a network's authority: restore it")
        try:
            _check_dates(certificate, datetime.now(UTC), "the authority's certificate")
        except CertificateError as error:
            raise ConfigError(f"{folder}/ca.pem: {error}: make a new authority for the network") from None
        return cls(organisations[0], certificate, key)

    def save(self, folder: str | Path) -> None:
        """Write ca.key (for the owner only) and ca.pem into ``folder``; neither may exist."""
        folder = Path(folder)
        os.makedirs(folder, exist_ok=True)
        if (folder / "ca.pem").exists():  # asked first, so that a refusal leaves no key without certificate
            raise refusal_to_overwrite(folder / "ca.pem")
        write_private(folder / "ca.key", private_pem(self.key))
        write_public(folder / "ca.pem", certificate_pem(self.certificate))

    def issue(
        self, node: str, public_key: PublicKey, days: float = 825, *, now: datetime | None = None
    ) -> x509.Certificate:
        """Vouch that ``public_key`` is that of ``node``, at most as long as the authority itself lasts."""
        now = now or datetime.now(UTC)
        mine = self.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
        return (
            x509.CertificateBuilder(
                subject_name=_name(_node_id(node), self.network), issuer_name=self.certificate.subject
            )
            .public_key(_p256(public_key))
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - BACKDATED)
            .not_valid_after(min(now + timedelta(days=days), self.certificate.not_valid_after_utc))
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(authority=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(_USES), critical=False)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(node)]), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(mine), critical=False
            )
            .sign(self.key, hashes.SHA256())
        )

    def sign_request(self, csr_pem: bytes, expected_node: str | None = None, days: float = 825) -> bytes:
        """The certificate (PEM) for a request, of which only name and public key are used."""
        try:
            csr = x509.load_pem_x509_csr(csr_pem)
            genuine = csr.is_signature_valid
            key = csr.public_key()
        except UNPARSABLE:
            raise ConfigError("the certificate request is not in PEM: send the file `request` made") from None
        if not genuine:
            raise ConfigError("the certificate request was altered on its way: have it sent again")
        nodes = _attributes(csr.subject, NameOID.COMMON_NAME)
        networks = _attributes(csr.subject, NameOID.ORGANIZATION_NAME)
        if len(nodes) != 1 or (expected_node is not None and nodes != [expected_node]):
            wanted = "one node" if expected_node is None else expected_node
            raise ConfigError(f"the certificate request names {quoted(nodes)}, not {wanted}: ask for another")
        if networks != [self.network]:
            raise ConfigError(
                f"the certificate request is for network {quoted(networks)}, and this is the authority of "
                f"{self.network}: ask for another"
            )
        return certificate_pem(self.issue(nodes[0], _p256(key), days))

    def member(self, node: str, days: float = 825, *, now: datetime | None = None) -> "Identity":
        """A new key and certificate at once, for networks whose files are all written in one place."""
        key = new_key()
        certificate = self.issue(node, key.public_key(), days, now=now)
        return Identity(node, self.network, certificate, (self.certificate,), key)


@dataclass(frozen=True, slots=True, eq=False)
class Identity:
    """What one node proves itself with, and the authorities it believes."""

    node: str
    network: str
    certificate: x509.Certificate
    authorities: tuple[x509.Certificate, ...]
    key: PrivateKey = field(repr=False)

    @classmethod
    def load(
        cls,
        ca: str | Path,
        certificate: str | Path,
        key: str | Path,
        node: str,
        network: str,
        *,
        now: datetime | None = None,
    ) -> Self:
        """Read and check the three files; every mistake is a `ConfigError` naming the file and the remedy."""
        authorities = read_certificates(Path(ca))
        for each in authorities:
            if not _is_authority(each):
                raise ConfigError(
                    f"{ca} holds a certificate that is no authority's: use the network's ca.pem"
                )
        own = read_certificates(Path(certificate))[0]
        private = read_key(Path(key))
        if own.public_key() != private.public_key():
            raise ConfigError(f"{key} does not belong to {certificate}: use the pair made for one node")
        try:
            verify_certificate(own, authorities, node, network, now or datetime.now(UTC))
        except CertificateError as error:
            raise ConfigError(f"{certificate}: {error}: {_REMEDY[error.kind]}") from None
        return cls(node, network, own, authorities, private)

    @property
    def certificate_der(self) -> bytes:
        """The certificate as it travels."""
        return self.certificate.public_bytes(serialization.Encoding.DER)

    @property
    def certificate_pem(self) -> bytes:
        """The certificate as it is stored."""
        return certificate_pem(self.certificate)

    @property
    def ca_pem(self) -> bytes:
        """All authorities, one after the other."""
        return b"".join(certificate_pem(each) for each in self.authorities)

    @property
    def valid_until(self) -> datetime:
        """When others stop believing it: at its own end, or at that of the authority that issued it."""
        issuer = _issuer(self.certificate, self.authorities) or self.certificate
        return min(self.certificate.not_valid_after_utc, issuer.not_valid_after_utc)

    def sign(self, data: bytes) -> bytes:
        """ECDSA over SHA-256. The same data gives the same bytes, so a restarted node repeats itself exactly.

        Compare records by their data all the same: anyone can turn a signature into a second valid one.
        """
        return self.key.sign(SIGNED_RECORD + data, ec.ECDSA(hashes.SHA256(), deterministic_signing=True))


def request(node: str, network: str) -> tuple[PrivateKey, bytes]:
    """A new key, and the request (PEM) that its owner sends to the authority."""
    key = new_key()
    name = _name(_node_id(node), _network_id(network))
    csr = x509.CertificateSigningRequestBuilder(name).sign(key, hashes.SHA256())
    return key, csr.public_bytes(serialization.Encoding.PEM)


def new_key() -> PrivateKey:
    """A new P-256 key."""
    return ec.generate_private_key(ec.SECP256R1())


def verify(
    certificate: bytes,
    ca: x509.Certificate | Sequence[x509.Certificate],
    node: str,
    network: str,
    now: datetime,
) -> PublicKey:
    """The key of ``node``, if these foreign bytes (DER or PEM) prove it; else `CertificateError`.

    Compare members by this key, not by the bytes: those after the signed part can be varied by anyone.
    """
    authorities = (ca,) if isinstance(ca, x509.Certificate) else tuple(ca)
    return verify_certificate(parse_certificate(certificate), authorities, node, network, now)


def parse_certificate(data: bytes) -> x509.Certificate:
    """One certificate from foreign bytes, DER or PEM; else `CertificateError`."""
    try:
        if len(data) > LARGEST_CERTIFICATE:
            raise ValueError("too long")
        if data.startswith(b"-----BEGIN"):
            certificate = x509.load_pem_x509_certificate(data)
        else:
            certificate = x509.load_der_x509_certificate(data)
        # The library reads these when first asked: ask now, so that no later reader meets a surprise.
        _ = subject(certificate), certificate.not_valid_before_utc, certificate.not_valid_after_utc
        return certificate
    except UNPARSABLE:
        raise CertificateError("malformed", "the bytes are no certificate") from None


def verify_certificate(
    certificate: x509.Certificate,
    authorities: Sequence[x509.Certificate],
    node: str,
    network: str,
    now: datetime,
) -> PublicKey:
    """Like `verify`, for a parsed certificate. The first fault found is the one nearest to its cause."""
    try:
        issuer = _issuer(certificate, authorities)
        if issuer is None:
            raise CertificateError("authority", "the certificate was not issued by this network's authority")
        nodes, networks = subject(certificate)
        extensions = certificate.extensions
        names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        uses = extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        key = certificate.public_key()
    except UNPARSABLE:
        raise CertificateError("malformed", "the certificate lacks what a member's must have") from None
    # gRPC's client looks at the DNS name and its server at the common name: they must not differ
    if nodes != [node] or list(names) != [x509.DNSName(node)]:
        raise CertificateError("node", f"the certificate is that of {quoted(nodes)}, not of {node}")
    if networks != [network]:
        raise CertificateError("network", f"the certificate is for network {quoted(networks)}, not {network}")
    if not set(_USES) <= set(uses) or _is_authority(certificate):
        raise CertificateError("malformed", "the certificate is not meant for both ends of a connection")
    if not isinstance(key, PublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise CertificateError("malformed", "the certificate's key is not ECDSA P-256")
    _check_dates(certificate, now, "the certificate")
    _check_dates(issuer, now, "the authority's certificate")
    return key


def verify_signature(public_key: PublicKey, data: bytes, signature: bytes) -> bool:
    """Whether `Identity.sign` made ``signature`` over ``data`` with the matching key."""
    try:
        public_key.verify(signature, SIGNED_RECORD + data, ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        return False
    return True


def subject(certificate: x509.Certificate) -> tuple[list[str], list[str]]:
    """The node ids and the network ids a certificate claims, one each if it is in order."""
    name = certificate.subject
    return _attributes(name, NameOID.COMMON_NAME), _attributes(name, NameOID.ORGANIZATION_NAME)


def moment(when: datetime) -> str:
    """A date as messages print it."""
    return f"{when.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def server_credentials(identity: Callable[[], Identity]) -> grpc.ServerCredentials:
    """For the listening end; who shows no certificate of this authority gets no connection.

    gRPC asks before every handshake, on a thread of its own, whether the identity is still the same.
    """

    def configuration(own: Identity) -> grpc.ServerCertificateConfiguration:
        pair = (private_pem(own.key), own.certificate_pem)
        return grpc.ssl_server_certificate_configuration([pair], root_certificates=own.ca_pem)

    shown = identity()

    def renewed() -> grpc.ServerCertificateConfiguration | None:
        nonlocal shown
        before, shown = shown, identity()
        return None if shown is before else configuration(shown)

    return grpc.dynamic_ssl_server_credentials(
        configuration(shown),
        renewed,  # type: ignore[arg-type]  # the stubs do not know that None means no change
        require_client_authentication=True,
    )


def channel_credentials(identity: Identity) -> grpc.ChannelCredentials:
    """For the dialling end; believes this authority only, none of the system's."""
    return grpc.ssl_channel_credentials(
        root_certificates=identity.ca_pem,
        private_key=private_pem(identity.key),
        certificate_chain=identity.certificate_pem,
    )


def channel_options(node: str) -> list[tuple[str, str]]:
    """Whatever its address, the peer must show the certificate of ``node``."""
    return [("grpc.ssl_target_name_override", _node_id(node))]


def peer_name(
    auth_context: Mapping[str, Iterable[bytes]], own: Identity, now: datetime | None = None
) -> str | None:
    """The member of our network that a caller's certificate proves, from `ServicerContext.auth_context()`.

    gRPC has seen to it that our authority issued the certificate and that the caller has its key, but not
    that it is a member's, of this network.
    """
    try:
        certificate = parse_certificate(b"".join(auth_context.get("x509_pem_cert", ())))
        nodes, _ = subject(certificate)
        node = nodes[0] if nodes else ""
        verify_certificate(certificate, own.authorities, node, own.network, now or datetime.now(UTC))
    except CertificateError:
        return None
    return node if NODE_ID.fullmatch(node) else None


def _issuer(
    certificate: x509.Certificate, authorities: Sequence[x509.Certificate]
) -> x509.Certificate | None:
    for authority in authorities:
        try:
            certificate.verify_directly_issued_by(authority)
        except (*UNPARSABLE, InvalidSignature):  # another name, another key
            continue
        return authority
    return None


def _check_dates(certificate: x509.Certificate, now: datetime, what: str) -> None:
    start, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now > end:
        raise CertificateError("expired", f"{what} expired on {moment(end)}, and it is {moment(now)} here")
    if now < start:
        raise CertificateError(
            "not-yet-valid", f"{what} is valid from {moment(start)}, and it is {moment(now)} here"
        )


def _is_authority(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except UNPARSABLE:
        return False


def _name(common: str, organisation: str) -> x509.Name:
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, organisation),
            x509.NameAttribute(NameOID.COMMON_NAME, common),
        ]
    )


def _key_usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not authority,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _attributes(name: x509.Name, kind: x509.ObjectIdentifier) -> list[str]:
    return [str(attribute.value) for attribute in name.get_attributes_for_oid(kind)]


def quoted(names: Sequence[str]) -> str:
    """Foreign names for a message: nothing that moves a cursor, nothing endless."""
    if not names:
        return "nobody"
    return " and ".join(name if NODE_ID.fullmatch(name) else ascii(name[:64]) for name in names[:3])


def _node_id(node: str) -> str:
    if not NODE_ID.fullmatch(node):
        raise ConfigError(
            f"node id {node[:80]!r} cannot stand in a certificate: "
            "use lower-case letters, digits and inner hyphens, at most 63"
        )
    return node


def _network_id(network: str) -> str:
    if not 1 <= len(network.encode()) <= 64 or not network.isprintable() or network != network.strip():
        raise ConfigError(
            f"network id {network[:80]!r} cannot stand in a certificate: use 1 to 64 printable characters"
        )
    return network


def _p256(key: object) -> PublicKey:
    if not isinstance(key, PublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise ConfigError("the key to be certified is not ECDSA P-256: make it with `request`")
    return key
