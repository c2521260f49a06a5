"""Who signs a node's records: the key of its certificate or, without certificates, one made on the spot."""

from datetime import UTC, datetime

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_der_private_key,
    load_der_public_key,
)

from desmr_node.protocol.faults import PeerFault
from desmr_node.protocol.seal import Verifier
from desmr_node.transport import tls


class CertificateSigner:
    """Signs with the certificate's key; believes certificates of the same authority."""

    def __init__(self, identity: tls.Identity) -> None:
        self._identity = identity
        self.certificate = identity.certificate_der

    def secret(self) -> bytes:
        """Nothing: the key lies beside its certificate."""
        return b""

    def sign(self, data: bytes) -> bytes:
        """Our signature."""
        return self._identity.sign(data)

    def verifier(self, origin: str, certificate: bytes) -> Verifier:
        """The certificate must be the origin's, of our authority, and valid now."""
        identity = self._identity
        try:
            key = tls.verify(certificate, identity.authorities, origin, identity.network, datetime.now(UTC))
        except tls.CertificateError as error:
            raise PeerFault(
                f"passed on an introduction of {origin} with a bad certificate: {error}"
            ) from None
        return lambda data, signature: tls.verify_signature(key, data, signature)


class BareSigner:
    """For a network without certificates: signatures still tie an origin's records together."""

    def __init__(self, secret: bytes = b"") -> None:
        self._key = _read_key(secret) if secret else tls.new_key()
        self.certificate = self._key.public_key().public_bytes(
            Encoding.DER, PublicFormat.SubjectPublicKeyInfo
        )

    def secret(self) -> bytes:
        """The key: a node that was killed must sign with the same one."""
        return self._key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())

    def sign(self, data: bytes) -> bytes:
        """Our signature."""
        return self._key.sign(tls.SIGNED_RECORD + data, ec.ECDSA(hashes.SHA256()))

    def verifier(self, origin: str, certificate: bytes) -> Verifier:
        """Any key will do, since nobody vouches for any."""
        try:
            key = load_der_public_key(certificate)
        except Exception:  # the library raises several kinds on foreign bytes
            key = None
        if not isinstance(key, ec.EllipticCurvePublicKey):
            raise PeerFault(f"passed on an introduction of {origin} without a usable key") from None
        return lambda data, signature: tls.verify_signature(key, data, signature)


def _read_key(secret: bytes) -> ec.EllipticCurvePrivateKey:
    key = load_der_private_key(secret, password=None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)  # a snapshot of ours holds no other
    return key
