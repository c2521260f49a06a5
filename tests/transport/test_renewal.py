"""An identity follows its files, but never into a state in which they do not fit together."""

import logging
from datetime import UTC, datetime, timedelta

import pytest

from desmr_node.errors import ConfigError
from desmr_node.transport import tls
from desmr_node.transport.renewal import Reminder, Renewal

DAY = timedelta(days=1)


@pytest.fixture
def authority():
    return tls.Authority.create("crime")


@pytest.fixture
def member(tmp_path, authority):
    """Writes a new pair of pacific's as an operator would: each file moved over the old one."""

    def put(name, content):
        (tmp_path / "new").write_bytes(content)
        (tmp_path / "new").chmod(0o600)
        (tmp_path / "new").replace(tmp_path / name)

    def write(*names, days=825, issuer=authority, now=None):
        identity = issuer.member("pacific", days, now=now)
        contents = {
            "ca.pem": tls.certificate_pem(issuer.certificate),
            "node.pem": identity.certificate_pem,
            "node.key": tls.private_pem(identity.key),
        }
        for name in names or contents:
            put(name, contents[name])
        return identity

    return write


@pytest.fixture
def renewal(tmp_path, member, caplog):
    caplog.set_level(logging.INFO, "desmr")
    member()
    files = [tmp_path / name for name in ("ca.pem", "node.pem", "node.key")]
    return Renewal(lambda: tls.Identity.load(*files, "pacific", "crime"), files)


def said(caplog):
    found = [(r.levelname, r.getMessage()) for r in caplog.records]
    caplog.clear()
    return found


def test_nothing_changed(renewal, caplog):
    assert renewal() is renewal()
    assert said(caplog) == []


def test_a_new_pair_is_used(renewal, member, caplog):
    before = renewal()
    fresh = member(days=90)
    assert renewal().certificate == fresh.certificate != before.certificate
    assert renewal() is renewal()
    ((level, text),) = said(caplog)
    assert level == "INFO"
    assert f"new streams and the next fit use them until {tls.moment(fresh.valid_until)}" in text


def test_half_a_pair_is_not(renewal, member, caplog, tmp_path):
    """The key first, then the certificate: in between the old pair serves, and is said once to do so."""
    before = renewal()
    identity = member("node.key")
    assert renewal() is renewal() is before
    ((level, text),) = said(caplog)
    assert level == "WARNING"
    assert "but the old ones stay in use" in text
    assert "node.key does not belong to" in text
    (tmp_path / "node.pem").write_bytes(identity.certificate_pem)
    assert renewal().certificate == identity.certificate
    assert [level for level, _ in said(caplog)] == ["INFO"]


@pytest.mark.parametrize("name", ["ca.pem", "node.pem", "node.key"])
def test_a_file_that_is_damaged_or_gone(renewal, member, caplog, tmp_path, name):
    before = renewal()
    (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:100])
    assert renewal() is before
    assert renewal() is before
    (tmp_path / name).unlink()
    assert renewal() is before
    assert [level for level, _ in said(caplog)] == ["WARNING", "WARNING"]  # damaged, then gone
    fresh = member()
    assert renewal().certificate == fresh.certificate


def test_another_authority_needs_a_certificate_of_its_own(renewal, member, caplog):
    before = renewal()
    member("ca.pem", issuer=tls.Authority.create("crime"))
    assert renewal() is before
    assert "was not issued by this network's authority" in said(caplog)[0][1]


def test_a_certificate_that_waits_for_its_first_day(tmp_path, member, renewal, caplog):
    """Nothing about the files changes when it comes."""
    clock = [datetime.now(UTC)]
    files = [tmp_path / name for name in ("ca.pem", "node.pem", "node.key")]
    renewal = Renewal(lambda: tls.Identity.load(*files, "pacific", "crime", now=clock[0]), files)
    before = renewal()
    fresh = member("node.pem", "node.key", now=clock[0] + 2 * DAY)
    assert renewal() is renewal() is before
    assert [level for level, _ in said(caplog)] == ["WARNING"]
    clock[0] += 2 * DAY
    assert renewal().certificate == fresh.certificate


def test_the_first_pair_must_be_right(tmp_path):
    files = [tmp_path / name for name in ("ca.pem", "node.pem", "node.key")]
    tls.Authority.create("crime").save(tmp_path)
    with pytest.raises(ConfigError, match=r"node\.pem does not exist"):
        Renewal(lambda: tls.Identity.load(*files, "pacific", "crime"), files)


def test_keys_are_not_in_what_is_said(renewal, member, caplog, tmp_path):
    identity = member("node.key")
    renewal()
    secret = tls.private_pem(identity.key).decode().splitlines()[1]
    assert said(caplog)
    assert secret not in caplog.text


# --- expiry -------------------------------------------------------------------------------------------------


def test_reminded_once_a_day_in_the_last_thirty(authority):
    now = datetime.now(UTC)
    identity = authority.member("pacific", 31, now=now)
    reminder = Reminder(lambda: identity)
    assert reminder.due(now) is None
    assert "in 29 days: have it issued again" in reminder.due(now + 1.5 * DAY)
    assert reminder.due(now + 2.4 * DAY) is None
    assert "in 28 days" in reminder.due(now + 2.5 * DAY)
    assert "expired on" in reminder.due(now + 32 * DAY)
    identity = authority.member("pacific", 90, now=now)
    assert reminder.due(now + 34 * DAY) is None


def test_an_authority_that_ends_first_counts(authority):
    young = authority.member("pacific", 400)
    now = datetime.now(UTC)
    old = tls.Authority.create("crime", years=1, now=now)
    late = old.issue("pacific", young.key.public_key(), 10_000, now=now)
    identity = tls.Identity("pacific", "crime", late, (authority.certificate, old.certificate), young.key)
    assert identity.valid_until == old.certificate.not_valid_after_utc
    assert young.valid_until == young.certificate.not_valid_after_utc
