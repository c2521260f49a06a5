"""Certificates and the authority itself are replaced under daemons that go on running."""

import asyncio
import logging
import socket
import urllib.request
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509

from desmr_node.protocol.machine import Phase
from desmr_node.runtime import signing
from desmr_node.runtime.worker import Worker
from desmr_node.transport import tls
from desmr_node.transport.probe import _Channel, probe


def put(path, content):
    """Moved over the old file, private if it was."""
    fresh = path.with_name("fresh")
    fresh.write_bytes(content)
    fresh.chmod(path.stat().st_mode & 0o777)
    fresh.replace(path)


def reissue(net, authority, *nodes, days=825):
    """New keys and certificates, by an authority; what they are."""
    made = {}
    for node in nodes:
        made[node] = authority.member(node, days)
        put(net.paths[node].with_name("node.key"), tls.private_pem(made[node].key))
        put(net.paths[node].with_name("node.pem"), made[node].certificate_pem)
    return made


def believe(net, *authorities):
    """What everybody's ca.pem says."""
    for path in net.paths.values():
        put(path.with_name("ca.pem"), b"".join(tls.certificate_pem(a.certificate) for a in authorities))


async def reconnect(net, a, b):
    """Break the edge and wait until both ends see it up again."""
    lost = asyncio.Event()
    real = net.daemons[a].node.lost

    def notice(peer, reason):
        real(peer, reason)
        if peer == b:
            lost.set()

    net.daemons[a].node.lost = notice
    net.daemons[a].streams.drop(b, "the test breaks it")
    async with asyncio.timeout(10):
        await lost.wait()
    del net.daemons[a].node.lost
    await net.up(a, b)


async def shown(net, node):
    """The certificate that a node's port shows to a newcomer."""
    host, port = net.config.node(node).address.rsplit(":", 1)

    with socket.create_connection((host, int(port))) as connection:
        connection.setblocking(False)
        channel = _Channel(connection, node, None)
        await channel.handshake()
        return x509.load_der_x509_certificate(channel.peer_certificate())


@pytest.fixture
def signers(monkeypatch):
    """The certificates with which fits were signed, in order."""
    made = []
    real = signing.CertificateSigner.__init__

    def note(self, identity):
        made.append(identity.certificate)
        real(self, identity)

    monkeypatch.setattr(signing.CertificateSigner, "__init__", note)
    return made


async def test_one_member_gets_a_new_certificate(network, signers, caplog):
    """The streams stay; newcomers see the new one, the next fit is signed with it."""
    caplog.set_level(logging.INFO, "desmr")
    net = network()
    await net.start()
    await net.fit("a")
    old = await shown(net, "b")
    assert set(signers) >= {old}
    signers.clear()
    traffic = net.daemons["b"].streams.traffic("a").messages_sent

    authority = tls.Authority.load(net.folder / "authority")
    fresh = reissue(net, authority, "b", days=60)["b"].certificate
    assert (await shown(net, "b")) == fresh != old
    assert "the certificates were replaced" in caplog.text
    await net.fit("c")
    assert {net.daemons[node].node.machine.phase for node in "abc"} == {Phase.DONE}
    assert fresh in signers
    assert old not in signers
    assert net.daemons["b"].streams.traffic("a").messages_sent > traffic  # no stream was made anew
    assert not any("lost" in r.getMessage() for r in caplog.records)
    for peer in "ac":
        await reconnect(net, "b", peer)
    await net.fit("a")
    assert net.daemons["a"].result["fit"] == 3


async def test_the_authority_is_replaced(network, caplog):
    """Added everywhere, members issued anew one by one, the old one removed: each time new streams, a fit."""
    caplog.set_level(logging.INFO, "desmr")
    net = network()
    await net.start()
    old, new = tls.Authority.load(net.folder / "authority"), tls.Authority.create("test")
    fits = 0

    async def all_is_well():
        nonlocal fits
        fits += 1
        await net.up()
        for a, b in net.edges:
            await reconnect(net, a, b)
        await net.fit("abc"[fits % 3])
        phases = {node: daemon.node.machine.phase for node, daemon in net.daemons.items()}
        assert set(phases.values()) == {Phase.DONE}, net._standing()
        assert {daemon.result["fit"] for daemon in net.daemons.values()} == {fits}

    await all_is_well()
    believe(net, old, new)
    await all_is_well()
    for node in "abc":
        reissue(net, new, node)
        await all_is_well()
    believe(net, new)
    await all_is_well()
    assert "the old ones stay in use" not in caplog.text
    for node in "abc":
        seen = await shown(net, node)
        seen.verify_directly_issued_by(new.certificate)

    # whom only the old authority vouches for gets no stream any more
    stranger = old.member("a")
    found = await probe(net.config.node("b").address, "b", stranger)
    assert found.kind in ("refuses-us", "other-authority")


async def test_the_old_authority_goes_too_early(network, caplog):
    """A member without a new certificate keeps what it had, and says what is wrong."""
    net = network()
    await net.start()
    await net.up()
    new = tls.Authority.create("test")
    put(net.paths["b"].with_name("ca.pem"), tls.certificate_pem(new.certificate))
    assert net.daemons["b"].identity() is net.daemons["b"].identity()
    (warning,) = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert "the old ones stay in use" in warning
    assert "was not issued by this network's authority" in warning
    await reconnect(net, "a", "b")
    await net.fit("a")
    assert net.daemons["c"].node.machine.phase is Phase.DONE


async def test_damaged_files_do_not_end_the_dialling(network, caplog):
    net = network("ab", ["ab"])
    await net.start()
    await net.up()
    key = net.paths["a"].with_name("node.key")
    kept = key.read_bytes()
    put(key, b"not a key")
    await reconnect(net, "a", "b")
    assert "holds no private key" in caplog.text
    put(key, kept)
    await net.fit("b")
    assert net.daemons["a"].node.machine.phase is Phase.DONE


async def test_a_fit_under_way_keeps_its_key(network, monkeypatch, signers):
    """Replaced in mid-fit at every member: the sums that follow are still signed and believed."""
    net = network()
    await net.start()
    authority = tls.Authority.load(net.folder / "authority")

    real, replaced = Worker.compute, []

    def compute(self, task):
        if not replaced and self.share.stage == "rounds":
            replaced.append(reissue(net, authority, *"abc"))
            for daemon in net.daemons.values():
                daemon.identity()
        return real(self, task)

    monkeypatch.setattr(Worker, "compute", compute)
    await net.fit("a")
    assert replaced
    assert {net.daemons[node].node.machine.phase for node in "abc"} == {Phase.DONE}
    fresh = {identity.certificate for identity in replaced[0].values()}
    assert not fresh & set(signers)
    signers.clear()
    await net.fit("b")
    assert fresh == set(signers)


async def test_expiry_is_told_before_it_comes(network, caplog):
    net = network("ab", ["ab"])
    authority = tls.Authority.load(net.folder / "authority")
    end = reissue(net, authority, "a", days=20.5)["a"].certificate.not_valid_after_utc
    net.change("a", lambda document: document.update(metrics={"listen": "127.0.0.1:0"}))
    await net.start("a", "b")
    (warning,) = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert f"the certificate of this node expires on {tls.moment(end)}, in 20 days" in warning
    url = f"http://127.0.0.1:{net.daemons['a'].metrics_port}/metrics"

    def scrape():
        with urllib.request.urlopen(url) as page:
            lines = dict(line.rsplit(" ", 1) for line in page.read().decode().splitlines() if line[0] != "#")
        return float(lines["desmr_certificate_expires_seconds"])

    assert await asyncio.to_thread(scrape) == end.timestamp()
    later = reissue(net, authority, "a", days=40)["a"].certificate.not_valid_after_utc
    assert await asyncio.to_thread(scrape) == later.timestamp()


async def test_an_expired_member_declines(network, monkeypatch):
    """Its streams may still be up; nobody would believe its signature."""
    net = network("ab", ["ab"])
    await net.start()
    await net.up()
    authority = tls.Authority.load(net.folder / "authority")
    old = authority.member("a", 1, now=datetime.now(UTC) - timedelta(days=2))
    monkeypatch.setattr(net.daemons["a"].identity, "_identity", old)
    await net.fit("b")
    assert "declines: its certificate expired on" in net.reason("a")
    assert "a: declines: its certificate expired on" in net.reason("b")
