"""Who a node is: every refusal names its file and remedy, and real handshakes let in members only."""

import logging
import os
import stat
import traceback
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from hypothesis import given, settings
from hypothesis import strategies as st

from desmr_node.errors import ConfigError
from desmr_node.transport import keyfiles, tls

NOW = datetime.now(UTC)
LONG_AGO = NOW - timedelta(days=1000)


def write(folder, identity, key=None):
    folder.mkdir(parents=True, exist_ok=True)
    tls.write_public(folder / "ca.pem", identity.ca_pem)
    tls.write_public(folder / "node.pem", identity.certificate_pem)
    tls.write_private(folder / "node.key", key or tls.private_pem(identity.key))
    return folder


def load(folder, node="pacific", network="crime", **kwargs):
    return tls.Identity.load(
        folder / "ca.pem", folder / "node.pem", folder / "node.key", node, network, **kwargs
    )


def refusal(folder, **kwargs):
    with pytest.raises(ConfigError) as caught:
        load(folder, **kwargs)
    text = str(caught.value)
    assert "\n" not in text
    return text


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


# --- certificates -----------------------------------------------------------------------------------------


def test_a_certificate_says_who_where_and_what_for(authority, identities):
    certificate = identities["pacific"].certificate
    assert tls.subject(certificate) == (["pacific"], ["crime"])
    extension = certificate.extensions.get_extension_for_class
    assert list(extension(x509.SubjectAlternativeName).value) == [x509.DNSName("pacific")]
    assert set(extension(x509.ExtendedKeyUsage).value) == {
        ExtendedKeyUsageOID.SERVER_AUTH,
        ExtendedKeyUsageOID.CLIENT_AUTH,
    }
    assert extension(x509.BasicConstraints).value.ca is False
    assert isinstance(certificate.public_key().curve, ec.SECP256R1)
    own = authority.certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
    assert (own.ca, own.path_length) == (True, 0)


def test_a_certificate_never_outlives_its_authority():
    brief = tls.Authority.create("crime", years=1)
    certificate = brief.issue("pacific", tls.new_key().public_key(), days=825)
    assert certificate.not_valid_after_utc == brief.certificate.not_valid_after_utc


@pytest.mark.parametrize("node", ["", "Pacific", "10.0.0.1", "a_b", "-a", "a-", "a" * 64, "a\n", "é", "a.b"])
def test_an_id_that_cannot_stand_in_a_certificate_is_refused(authority, node):
    for attempt in (
        lambda: authority.issue(node, tls.new_key().public_key()),
        lambda: tls.request(node, "crime"),
        lambda: tls.channel_options(node),
    ):
        with pytest.raises(ConfigError, match="lower-case letters"):
            attempt()


@pytest.mark.parametrize("network", ["", "x" * 65, "a\nb", " a"])
def test_a_network_id_that_cannot_stand_in_a_certificate_is_refused(network):
    with pytest.raises(ConfigError, match="printable"):
        tls.Authority.create(network)


def test_an_authority_survives_its_folder(tmp_path, authority):
    authority.save(tmp_path / "new")
    again = tls.Authority.load(tmp_path / "new")
    assert again.network == "crime"
    assert again.certificate == authority.certificate
    member = again.member("pacific")
    tls.verify(member.certificate_der, authority.certificate, "pacific", "crime", NOW)
    assert mode(tmp_path / "new" / "ca.key") == 0o600
    assert mode(tmp_path / "new" / "ca.pem") == 0o644


def test_an_authority_is_not_overwritten_and_a_refusal_leaves_no_key(tmp_path, authority):
    (tmp_path / "ca.pem").write_text("precious")
    with pytest.raises(ConfigError, match=r"ca\.pem exists"):
        authority.save(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["ca.pem"]
    assert (tmp_path / "ca.pem").read_text() == "precious"


def test_an_authority_that_cannot_work_is_refused(tmp_path, authority, identities):
    authority.save(tmp_path / "a")
    (tmp_path / "a" / "ca.key").unlink()
    tls.write_private(tmp_path / "a" / "ca.key", tls.private_pem(tls.new_key()))
    with pytest.raises(ConfigError, match=r"ca\.key does not belong to ca\.pem"):
        tls.Authority.load(tmp_path / "a")
    tls.Authority.create("crime", years=1, now=LONG_AGO).save(tmp_path / "b")
    with pytest.raises(ConfigError, match=r"expired on .* make a new authority"):
        tls.Authority.load(tmp_path / "b")
    member = identities["pacific"]
    tls.Authority("crime", member.certificate, member.key).save(tmp_path / "c")
    with pytest.raises(ConfigError, match="not the certificate of a network's authority"):
        tls.Authority.load(tmp_path / "c")


# --- requests: the key stays with its owner ---------------------------------------------------------------


def test_a_request_becomes_an_identity(tmp_path, authority):
    key, csr = tls.request("pacific", "crime")
    certificate = authority.sign_request(csr, expected_node="pacific")
    tls.write_private(tmp_path / "node.key", tls.private_pem(key))
    tls.write_public(tmp_path / "node.pem", certificate)
    tls.write_public(tmp_path / "ca.pem", tls.certificate_pem(authority.certificate))
    assert load(tmp_path).node == "pacific"


def signed_csr(key, *names, extension=None):
    kinds = {"cn": NameOID.COMMON_NAME, "o": NameOID.ORGANIZATION_NAME}
    name = x509.Name([x509.NameAttribute(kinds[kind], value) for kind, value in names])
    builder = x509.CertificateSigningRequestBuilder(name)
    if extension is not None:
        builder = builder.add_extension(extension, critical=True)
    algorithm = None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    return builder.sign(key, algorithm).public_bytes(serialization.Encoding.PEM)


def altered(csr_pem):
    der = x509.load_pem_x509_csr(csr_pem).public_bytes(serialization.Encoding.DER)
    der = der.replace(b"pacific", b"attacks")
    return x509.load_der_x509_csr(der).public_bytes(serialization.Encoding.PEM)


@pytest.mark.parametrize(
    ("csr", "message"),
    [
        (lambda: b"hello", "not in PEM"),
        (lambda: altered(tls.request("pacific", "crime")[1]), "altered on its way"),
        (lambda: tls.request("mountain", "crime")[1], "names mountain, not pacific"),
        (lambda: tls.request("pacific", "census")[1], "network census, and this is the authority of crime"),
        (lambda: signed_csr(tls.new_key(), ("o", "crime")), "names nobody"),
        (lambda: signed_csr(tls.new_key(), ("cn", "pacific"), ("cn", "b"), ("o", "crime")), "pacific and b"),
        (
            lambda: signed_csr(ed25519.Ed25519PrivateKey.generate(), ("cn", "pacific"), ("o", "crime")),
            "not ECDSA P-256",
        ),
        (
            lambda: signed_csr(ec.generate_private_key(ec.SECP384R1()), ("cn", "pacific"), ("o", "crime")),
            "not ECDSA P-256",
        ),
    ],
)
def test_a_bad_request_is_refused(authority, csr, message):
    with pytest.raises(ConfigError, match=message):
        authority.sign_request(csr(), expected_node="pacific")


def test_a_request_without_expected_name_still_needs_a_proper_one(authority):
    with pytest.raises(ConfigError, match="lower-case"):
        authority.sign_request(signed_csr(tls.new_key(), ("cn", "*.evil"), ("o", "crime")))


def test_a_request_cannot_ask_for_powers(authority):
    """Only name and key are taken from a request: it does not make its sender an authority."""
    ask = x509.BasicConstraints(ca=True, path_length=None)
    csr = signed_csr(tls.new_key(), ("cn", "pacific"), ("o", "crime"), extension=ask)
    certificate = x509.load_pem_x509_certificate(authority.sign_request(csr))
    assert certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca is False


# --- Identity.load: every mistake has its sentence ----------------------------------------------------------


def test_an_identity_loads_and_travels(tmp_path, authority, identities):
    identity = load(write(tmp_path, identities["pacific"]))
    assert (identity.node, identity.network) == ("pacific", "crime")
    assert identity.certificate_der == identities["pacific"].certificate_der
    key = tls.verify(identity.certificate_der, identity.authorities, "pacific", "crime", NOW)
    assert key == identity.key.public_key()
    assert tls.verify(identity.certificate_pem, authority.certificate, "pacific", "crime", NOW) == key


def test_two_authorities_may_be_believed_while_one_replaces_the_other(tmp_path, identities):
    new = tls.Authority.create("crime")
    write(tmp_path, identities["pacific"])
    both = identities["pacific"].ca_pem + tls.certificate_pem(new.certificate)
    tls.write_public(tmp_path / "ca.pem", both, replace=True)
    identity = load(tmp_path)
    assert identity.ca_pem == both
    tls.verify(new.member("mountain").certificate_der, identity.authorities, "mountain", "crime", NOW)


@pytest.mark.parametrize("name", ["ca.pem", "node.pem", "node.key"])
def test_a_missing_file_is_named(tmp_path, identities, name):
    write(tmp_path, identities["pacific"])
    (tmp_path / name).unlink()
    assert refusal(tmp_path).startswith(f"{tmp_path / name} does not exist: correct the path")


@pytest.mark.parametrize("name", ["ca.pem", "node.pem", "node.key"])
def test_an_unreadable_file_is_named(tmp_path, identities, name):
    """A folder in its place: a file without permission would still open for root, who runs CI."""
    write(tmp_path, identities["pacific"])
    (tmp_path / name).unlink()
    (tmp_path / name).mkdir()
    assert refusal(tmp_path).startswith(f"{tmp_path / name} cannot be read (Is a directory): ")


@pytest.mark.parametrize("content", [b"", b"hello", b"-----BEGIN CERTIFICATE-----\nAAAA\n", b"\xff" * 100])
@pytest.mark.parametrize("name", ["ca.pem", "node.pem", "node.key"])
def test_a_file_that_is_not_pem_is_named(tmp_path, identities, name, content):
    write(tmp_path, identities["pacific"])
    (tmp_path / name).write_bytes(content)
    kind = "private key" if name == "node.key" else "certificate"
    assert refusal(tmp_path).startswith(f"{tmp_path / name} holds no {kind} in PEM: it must begin with")


@pytest.mark.parametrize("bits", [0o640, 0o604, 0o620, 0o610, 0o666])
def test_a_key_that_others_can_use_is_refused(tmp_path, identities, bits):
    write(tmp_path, identities["pacific"])
    key = tmp_path / "node.key"
    key.chmod(bits)
    text = refusal(tmp_path)
    assert f"(mode {bits:04o})" in text
    assert text.endswith(f": chmod 600 {key}")
    key.chmod(0o400)
    load(tmp_path)


@pytest.mark.parametrize(
    ("mode", "owner", "user", "said"),
    [
        (0o600, 10001, 10001, None),
        (0o400, 10001, 10001, None),
        (0o640, 10001, 10001, "others than its owner can use (mode 0640): chmod 600 node.key"),
        (0o404, 10001, 10001, "others than its owner can use (mode 0404): chmod 600 node.key"),
        (0o640, 0, 10001, None),
        (0o440, 0, 10001, None),  # a Secret volume with fsGroup
        (0o400, 0, 10001, None),
        (0o660, 0, 10001, "more than read it as its group (mode 0660): chmod 640 node.key"),
        (0o650, 0, 10001, "more than read it as its group (mode 0650): chmod 640 node.key"),
        (0o644, 0, 10001, "more than read it as its group (mode 0644): chmod 640 node.key"),
        (0o640, 0, 0, "others than its owner can use (mode 0640): chmod 600 node.key"),
        (0o600, 0, 0, None),
        (0o600, 10002, 10001, "belongs to user 10002, and this is user 10001"),
        (0o400, 10002, 0, "belongs to user 10002, and this is root"),
    ],
)
def test_whose_key_may_have_which_mode(mode, owner, user, said):
    found = keyfiles.exposure(Path("node.key"), mode, owner, user)
    assert (found is None) == (said is None)
    assert said is None or said in found


def test_the_owner_of_the_file_counts(tmp_path, identities, monkeypatch):
    """As another user than the one who wrote it: the owner is a stranger, unless it is root."""
    write(tmp_path, identities["pacific"])
    owner = (tmp_path / "node.key").stat().st_uid
    monkeypatch.setattr(keyfiles.os, "geteuid", lambda: owner + 1)
    if owner == 0:
        (tmp_path / "node.key").chmod(0o440)
        load(tmp_path)
        os.chown(tmp_path / "node.key", 4711, -1)
    text = refusal(tmp_path)
    assert "only this user or root may own it" in text
    assert text.endswith(
        f": chown {owner + 1} {tmp_path / 'node.key'}, then chmod 600 {tmp_path / 'node.key'}"
    )


def test_keys_may_be_links_as_in_a_secret_volume(tmp_path, identities):
    """node.key -> ..data/node.key, ..data -> ..2024_01_01: what counts is the file, not the links' 0777."""
    write(tmp_path / "..2024_01_01", identities["pacific"])
    (tmp_path / "..data").symlink_to("..2024_01_01")
    for name in ("ca.pem", "node.pem", "node.key"):
        (tmp_path / name).symlink_to(f"..data/{name}")
    load(tmp_path)
    (tmp_path / "..2024_01_01" / "node.key").chmod(0o604)
    assert "(mode 0604)" in refusal(tmp_path)


def test_an_encrypted_key_is_refused(tmp_path, identities):
    encrypted = identities["pacific"].key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )
    write(tmp_path, identities["pacific"], key=encrypted)
    text = refusal(tmp_path)
    assert text.startswith(f"{tmp_path / 'node.key'} is encrypted")
    assert "openssl pkey -in" in text


def test_a_key_of_another_kind_is_refused(tmp_path, identities):
    other = ed25519.Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    write(tmp_path, identities["pacific"], key=other)
    assert refusal(tmp_path).startswith(f"{tmp_path / 'node.key'} is not an ECDSA P-256 key")


def test_the_key_of_another_certificate_is_refused(tmp_path, identities):
    write(tmp_path, identities["pacific"], key=tls.private_pem(tls.new_key()))
    assert f"{tmp_path / 'node.key'} does not belong to {tmp_path / 'node.pem'}" in refusal(tmp_path)


def test_a_certificate_of_another_authority_is_refused(tmp_path, identities):
    """Same network, same names: only the key tells the two authorities apart."""
    write(tmp_path, identities["pacific"])
    other = tls.certificate_pem(tls.Authority.create("crime").certificate)
    tls.write_public(tmp_path / "ca.pem", other, replace=True)
    text = refusal(tmp_path)
    assert text.startswith(f"{tmp_path / 'node.pem'}: the certificate was not issued by")
    assert "use the ca.pem of the authority" in text


def test_a_members_certificate_is_no_authority(tmp_path, identities):
    write(tmp_path, identities["pacific"])
    tls.write_public(tmp_path / "ca.pem", identities["mountain"].certificate_pem, replace=True)
    assert refusal(tmp_path).startswith(f"{tmp_path / 'ca.pem'} holds a certificate that is no authority's")


def test_wrong_node_wrong_network(tmp_path, identities):
    write(tmp_path, identities["pacific"])
    file = tmp_path / "node.pem"
    text = refusal(tmp_path, node="mountain")
    assert text.startswith(f"{file}: the certificate is that of pacific, not of mountain: give this node")
    text = refusal(tmp_path, network="census")
    assert text.startswith(f"{file}: the certificate is for network crime, not census: use the certificate")


def test_dates_are_told(tmp_path, identities):
    write(tmp_path, identities["pacific"])
    certificate = identities["pacific"].certificate
    start, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    late, early = end + timedelta(seconds=1), start - timedelta(seconds=1)
    text = refusal(tmp_path, now=late)
    assert f"expired on {tls.moment(end)}, and it is {tls.moment(late)} here: have it issued" in text
    text = refusal(tmp_path, now=early)
    assert f"valid from {tls.moment(start)}, and it is {tls.moment(early)} here: set this" in text
    load(tmp_path, now=start)
    load(tmp_path, now=end)


# --- verify: another member's certificate ------------------------------------------------------------------


def forged(authority, *, names=("pacific",), common=("pacific",), uses=None, ca=False, key=None):
    """A certificate that the authority's key signed but `issue` would never make."""
    subject = [x509.NameAttribute(NameOID.COMMON_NAME, name) for name in common]
    subject.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, "crime"))
    uses = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH] if uses is None else uses
    builder = (
        x509.CertificateBuilder(issuer_name=authority.certificate.subject, subject_name=x509.Name(subject))
        .public_key((key or tls.new_key()).public_key())
        .serial_number(1)
        .not_valid_before(NOW - timedelta(days=1))
        .not_valid_after(NOW + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
    )
    if names:
        builder = builder.add_extension(
            x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), critical=False
        )
    if uses:
        builder = builder.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
    return builder.sign(authority.key, hashes.SHA256()).public_bytes(serialization.Encoding.DER)


@pytest.mark.parametrize(
    ("made", "kind"),
    [
        ({"names": ("mountain",)}, "node"),  # client and server would see different nodes
        ({"names": ("pacific", "mountain")}, "node"),
        ({"names": ()}, "malformed"),
        ({"common": ()}, "node"),
        ({"common": ("pacific", "mountain")}, "node"),
        ({"common": ("\x1b[2J",)}, "node"),
        ({"uses": [ExtendedKeyUsageOID.SERVER_AUTH]}, "malformed"),
        ({"uses": []}, "malformed"),
        ({"ca": True}, "malformed"),
        ({"key": ed25519.Ed25519PrivateKey.generate()}, "malformed"),
        ({"key": ec.generate_private_key(ec.SECP384R1())}, "malformed"),
    ],
)
def test_an_odd_certificate_proves_nothing(authority, made, kind):
    tls.verify(forged(authority), authority.certificate, "pacific", "crime", NOW)
    with pytest.raises(tls.CertificateError) as caught:
        tls.verify(forged(authority, **made), authority.certificate, "pacific", "crime", NOW)
    assert caught.value.kind == kind
    assert str(caught.value).isprintable()


def test_a_member_cannot_vouch_for_others(authority, identities):
    member = identities["mountain"]
    posing = tls.Authority("crime", member.certificate, member.key)
    with pytest.raises(tls.CertificateError, match="not issued by") as caught:
        tls.verify(posing.member("pacific").certificate_der, authority.certificate, "pacific", "crime", NOW)
    assert caught.value.kind == "authority"


def test_an_expired_authority_is_believed_no_more(authority):
    brief = tls.Authority.create("crime", years=1, now=LONG_AGO)
    lasting = forged(tls.Authority("crime", brief.certificate, brief.key))
    with pytest.raises(tls.CertificateError, match="the authority's certificate expired"):
        tls.verify(lasting, brief.certificate, "pacific", "crime", NOW)


def test_endless_bytes_are_not_parsed(authority):
    with pytest.raises(tls.CertificateError, match="no certificate"):
        tls.verify(b"\x30" * (tls.LARGEST_CERTIFICATE + 1), authority.certificate, "a", "crime", NOW)


_AUTHORITY = tls.Authority.create("crime")
_DER = _AUTHORITY.member("pacific").certificate_der


@settings(deadline=None, max_examples=300)
@given(
    st.one_of(
        st.binary(max_size=200),
        st.tuples(st.integers(0, len(_DER) - 1), st.integers(1, 255)).map(
            lambda change: _DER[: change[0]] + bytes([_DER[change[0]] ^ change[1]]) + _DER[change[0] + 1 :]
        ),
        st.integers(0, len(_DER) - 1).map(lambda end: _DER[:end]),
    )
)
def test_foreign_bytes_give_the_remote_error_or_the_right_key(data):
    """The right key: one bit after the signed part, the padding of the signature, may change unnoticed."""
    try:
        key = tls.verify(data, _AUTHORITY.certificate, "pacific", "crime", NOW)
    except tls.CertificateError:
        return
    signed = tls.parse_certificate(data).tbs_certificate_bytes
    assert signed == tls.parse_certificate(_DER).tbs_certificate_bytes
    assert key == tls.parse_certificate(_DER).public_key()


def test_a_version_and_a_serial_number_nobody_knows_are_the_peers_fault(authority, identities):
    """Neither is a ValueError to the library."""
    der = identities["pacific"].certificate_der
    version = der.index(bytes([0xA0, 3, 2, 1, 2])) + 4
    serial = version + 3
    for place, value in ((version, 3), (serial, 0xFF)):
        data = der[:place] + bytes([value]) + der[place + 1 :]
        with pytest.raises(tls.CertificateError) as caught:
            tls.verify(data, authority.certificate, "pacific", "crime", NOW)
        assert caught.value.kind == "malformed"


# --- signatures ---------------------------------------------------------------------------------------------


def test_a_signature_belongs_to_its_data_and_its_key(identities):
    one, other = identities["pacific"], identities["mountain"]
    signature = one.sign(b"record")
    assert tls.verify_signature(one.key.public_key(), b"record", signature)
    assert not tls.verify_signature(one.key.public_key(), b"Record", signature)
    assert not tls.verify_signature(other.key.public_key(), b"record", signature)
    for bad in (b"", b"x" * 70, signature[:-1], signature + b"\0"):
        assert not tls.verify_signature(one.key.public_key(), b"record", bad)


def test_a_restarted_node_repeats_its_signatures(tmp_path, identities):
    again = load(write(tmp_path, identities["pacific"]))
    assert again.sign(b"record") == identities["pacific"].sign(b"record")


# --- secrets ------------------------------------------------------------------------------------------------


def test_keys_stay_out_of_text(tmp_path, authority, identities, caplog):
    caplog.set_level(logging.DEBUG)
    identity = identities["pacific"]
    said = [repr(identity), str(identity), f"{identity}", repr(authority), f"{[authority, identity]}"]
    logging.getLogger("desmr").warning("starting as %s under %r", identity, authority)
    write(tmp_path, identity)
    (tmp_path / "node.key").chmod(0o644)
    try:
        load(tmp_path)
    except ConfigError:
        said.append(traceback.format_exc())
    # a damaged key is what a parser might quote
    (tmp_path / "node.key").chmod(0o600)
    (tmp_path / "node.key").write_bytes(tls.private_pem(identity.key)[:-40])
    try:
        load(tmp_path)
    except ConfigError:
        said.append(traceback.format_exc())
    assert len(said) == 7
    said.append(caplog.text)
    for owner in (identity, authority):
        secret = owner.key.private_numbers().private_value
        pieces = tls.private_pem(owner.key).decode().splitlines()[1:-1]
        for text in said:
            assert "PrivateKey" not in text
            assert not any(piece in text for piece in [*pieces, str(secret), f"{secret:x}"])


def test_private_files_are_private_at_once_and_never_overwritten(tmp_path, monkeypatch):
    path = tmp_path / "node.key"
    modes = []
    real = tls.os.fchmod
    monkeypatch.setattr(tls.os, "fchmod", lambda fd, bits: (modes.append(mode(path)), real(fd, bits)))
    old = tls.os.umask(0)
    try:
        tls.write_private(path, b"first")
    finally:
        tls.os.umask(old)
    assert modes == [0o600]
    assert mode(path) == 0o600
    with pytest.raises(ConfigError, match=r"node\.key exists and is not overwritten"):
        tls.write_private(path, b"second")
    assert path.read_bytes() == b"first"


def test_a_link_is_not_followed(tmp_path):
    (tmp_path / "node.key").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="exists"):
        tls.write_private(tmp_path / "node.key", b"key")
    assert not (tmp_path / "elsewhere").exists()


def test_half_a_key_is_not_left_behind(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tls.os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        tls.write_private(tmp_path / "node.key", b"key")
    assert list(tmp_path.iterdir()) == []


def test_public_files(tmp_path):
    path = tmp_path / "node.pem"
    old = tls.os.umask(0o077)
    try:
        tls.write_public(path, b"first")
    finally:
        tls.os.umask(old)
    assert mode(path) == 0o644
    with pytest.raises(ConfigError, match="exists"):
        tls.write_public(path, b"second")
    tls.write_public(path, b"third", replace=True)
    assert path.read_bytes() == b"third"
    assert [each.name for each in tmp_path.iterdir()] == ["node.pem"]
    with pytest.raises(ConfigError, match="cannot be written"):
        tls.write_public(tmp_path / "nowhere" / "a.pem", b"")


# --- handshakes ---------------------------------------------------------------------------------------------


@asynccontextmanager
async def serving(own, *, plain=False):
    """A gRPC server on a free port that answers with the caller's name; yields its address."""

    async def who(request, context):
        return (tls.peer_name(context.auth_context(), own) or "nobody").encode()

    server = grpc.aio.server()
    handler = grpc.unary_unary_rpc_method_handler(who)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("t.T", {"Who": handler}),))
    if plain:
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        port = server.add_secure_port("127.0.0.1:0", tls.server_credentials(lambda: own))
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


async def ask(address, credentials, node="pacific"):
    if credentials is None:
        channel = grpc.aio.insecure_channel(address)
    else:
        channel = grpc.aio.secure_channel(address, credentials, options=tls.channel_options(node))
    async with channel:
        return (await channel.unary_unary("/t.T/Who")(b"", timeout=10)).decode()


async def test_members_meet_and_know_each_other(identities):
    async with serving(identities["pacific"]) as address:
        assert await ask(address, tls.channel_credentials(identities["mountain"])) == "mountain"


async def test_files_serve_as_well(tmp_path, identities):
    identity = load(write(tmp_path, identities["pacific"]))
    async with serving(identity) as address:
        assert await ask(address, tls.channel_credentials(identities["mountain"])) == "mountain"


async def test_plain_callers_have_no_name(identities):
    async with serving(identities["pacific"], plain=True) as address:
        assert await ask(address, None) == "nobody"


def stranger():
    return tls.Authority.create("crime").member("mountain")


def misled(authority):
    """Believes the right authority, shows the certificate of another one."""
    other = stranger()
    return tls.Identity("mountain", "crime", other.certificate, (authority.certificate,), other.key)


def nameless(authority):
    return grpc.ssl_channel_credentials(tls.certificate_pem(authority.certificate))


@pytest.mark.parametrize(
    "credentials",
    [
        pytest.param(lambda a: tls.channel_credentials(stranger()), id="other authority"),
        pytest.param(lambda a: tls.channel_credentials(misled(a)), id="certificate of another authority"),
        pytest.param(lambda a: tls.channel_credentials(a.member("mountain", now=LONG_AGO)), id="expired"),
        pytest.param(nameless, id="no certificate"),
        pytest.param(lambda a: None, id="plain"),
    ],
)
async def test_others_are_kept_out(authority, identities, credentials):
    async with serving(identities["pacific"]) as address:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await ask(address, credentials(authority))
    assert caught.value.code() == grpc.StatusCode.UNAVAILABLE


async def test_a_member_cannot_pose_as_another(authority, identities):
    async with serving(identities["pacific"]) as address:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await ask(address, tls.channel_credentials(identities["mountain"]), node="east-north-central")
    assert caught.value.code() == grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize(
    ("made", "name"),
    [
        ({}, "pacific"),
        ({"names": ("mountain",)}, None),
        ({"common": ("pacific", "mountain")}, None),
        ({"common": ("mountain", "pacific"), "names": ("mountain",)}, None),
        ({"common": ("Pacific",), "names": ("Pacific",)}, None),
        ({"common": ()}, None),
        ({"uses": [ExtendedKeyUsageOID.SERVER_AUTH]}, None),
    ],
)
def test_peer_name_takes_one_proper_name_only(authority, identities, made, name):
    pem = x509.load_der_x509_certificate(forged(authority, **made)).public_bytes(serialization.Encoding.PEM)
    assert tls.peer_name({"x509_pem_cert": [pem]}, identities["mountain"], NOW) == name


def test_peer_name_of_what_is_no_member(authority, identities):
    own = identities["mountain"]
    other = replace(authority, network="burglary").member("pacific")  # the same key vouches for it
    late = authority.member("pacific", now=LONG_AGO)
    contexts = [{}, {"transport_security_type": [b"insecure"]}, {"x509_common_name": [b"pacific"]}]
    contexts += [{"x509_pem_cert": [data]} for data in (b"", b"no", other.certificate_pem)]
    contexts += [{"x509_pem_cert": [late.certificate_pem]}]
    assert {tls.peer_name(context, own, NOW) for context in contexts} == {None}
