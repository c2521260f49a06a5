"""Keys and certificates as PEM files: private ones stay private, none is overwritten, all reach the disk."""

import os
import pwd
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


def exposure(path: Path, mode: int, owner: int, user: int) -> str | None:
    """Why a key of this mode and owner is not private to a process of ``user``, with the remedy, if so.

    The rule is PostgreSQL's. Our own key is for us alone. One that root put there may be readable by its
    group: that is how Kubernetes and packages hand a secret to a process that is not root. Any other owner
    could read the key, or put another in its place.
    """
    if owner == user:
        if mode & 0o077:
            return (
                f"{path} holds a private key that others than its owner can use (mode {mode:04o}): "
                f"chmod 600 {path}"
            )
    elif owner != 0:
        return (
            f"{path} holds a private key that belongs to {_name(owner)}, and this is {_name(user)}: "
            f"only this user or root may own it: chown {user} {path}, then chmod 600 {path}"
        )
    elif mode & 0o037:
        return (
            f"{path} holds a private key of root's with which others may do more than read it as its group "
            f"(mode {mode:04o}): chmod 640 {path}"
        )
    return None


def _name(user: int) -> str:
    """A user as people know it; in a container it may have no name."""
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"user {user}"


def _read(path: Path, *, private: bool = False) -> bytes:
    try:
        with path.open("rb") as file:
            # of the open file, not of the path: what was checked is what is read (and of a link, its target)
            found = os.fstat(file.fileno())
            exposed = private and exposure(path, stat.S_IMODE(found.st_mode), found.st_uid, os.geteuid())
            if exposed:
                raise ConfigError(exposed)
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
    """The P-256 key in a file that is private to us (`exposure`)."""
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
