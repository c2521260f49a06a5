"""Keys and certificates as PEM files: private ones stay private, none is overwritten, all reach the disk."""

import os
import stat
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from desmr_node.errors import ConfigError

PrivateKey = ec.EllipticCurvePrivateKey
LARGEST_FILE = 1 << 20
#: All that the library may raise over bytes it cannot make sense of; some are not ValueErrors.
UNPARSABLE = (
    ValueError,
    TypeError,
    UnsupportedAlgorithm,
    x509.InvalidVersion,
    x509.DuplicateExtension,
    x509.ExtensionNotFound,
    x509.UnsupportedGeneralNameType,
    UserWarning,  # the library's own, about odd serial numbers and names, where warnings are errors
)


def private_pem(key: PrivateKey) -> bytes:
    """The key as PKCS#8, unencrypted: for `write_private` and for gRPC, nowhere else."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def certificate_pem(certificate: x509.Certificate) -> bytes:
    """The certificate as text."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def write_private(path: str | Path, data: bytes) -> None:
    """Write a new file that only its owner can read, down to the disk; never over an existing one."""
    _write(Path(path), data, 0o600)


def write_public(path: str | Path, data: bytes, *, replace: bool = False) -> None:
    """Write a new file that all may read; with ``replace``, put it in the place of an old one in one step."""
    path = Path(path)
    if not replace:
        _write(path, data, 0o644)
        return
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    _write(fresh, data, 0o644)
    fresh.replace(path)
    _sync_folder(path.parent)


def _write(path: Path, data: bytes, mode: int) -> None:
    try:
        # 0600 from the first instant: a mode set afterwards would come too late
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise refusal_to_overwrite(path) from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be written ({error.strerror}): choose another folder") from None
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), mode)  # whatever the umask says
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        path.unlink(missing_ok=True)  # half a key helps nobody and would block the next attempt
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def refusal_to_overwrite(path: Path) -> ConfigError:
    """What to raise where a file already is."""
    return ConfigError(f"{path} exists and is not overwritten: choose another folder, or move it away first")


def _read(path: Path, *, private: bool = False) -> bytes:
    try:
        with path.open("rb") as file:
            # of the open file, not of the path: what was checked is what is read
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            if private and mode & 0o077:
                raise ConfigError(
                    f"{path} holds a private key that others than its owner can use (mode {mode:04o}): "
                    f"chmod 600 {path}"
                )
            return file.read(LARGEST_FILE)
    except FileNotFoundError:
        raise ConfigError(
            f"{path} does not exist: correct the path, or have it made by `desmr network init` "
            "(by `desmr network request` and `sign` where keys stay with their owners)"
        ) from None
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read ({error.strerror}): make it a file this user owns"
        ) from None


def read_certificates(path: Path) -> tuple[x509.Certificate, ...]:
    """All certificates of a file, at least one; they are only parsed, not believed."""
    data = _read(path)
    try:
        certificates = tuple(x509.load_pem_x509_certificates(data))
        _ = [(each.subject, each.public_key()) for each in certificates]  # as in tls.parse_certificate
        return certificates
    except UNPARSABLE:
        raise ConfigError(
            f"{path} holds no certificate in PEM: it must begin with '-----BEGIN CERTIFICATE-----'"
        ) from None


def read_key(path: Path) -> PrivateKey:
    """The P-256 key in a file that nobody but its owner can use."""
    data = _read(path, private=True)
    try:
        key = serialization.load_pem_private_key(data, None)
    except TypeError:  # how the library says that a password is missing
        raise ConfigError(
            f"{path} is encrypted and a daemon cannot type the password: "
            f"store the key in plain with `openssl pkey -in {path} -out NEW`, then chmod 600 NEW"
        ) from None
    except (ValueError, UnsupportedAlgorithm):
        raise ConfigError(
            f"{path} holds no private key in PEM: it must begin with '-----BEGIN PRIVATE KEY-----'"
        ) from None
    if not isinstance(key, PrivateKey) or not isinstance(key.curve, ec.SECP256R1):
        raise ConfigError(f"{path} is not an ECDSA P-256 key: make one with `desmr network init`")
    return key
