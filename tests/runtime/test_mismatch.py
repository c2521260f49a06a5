"""Two neighbours that do not fit together: both say what differs and with whom, nobody waits, all are told.

In the network f - m - n the faulty node f is "a" or "z", for either end of its edge: the smaller id dials.
"""

import asyncio
import logging
import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from desmr_node.errors import ConfigError
from desmr_node.protocol.machine import Machine, Phase
from desmr_node.protocol.messages import OLDEST_VERSION, VERSION
from desmr_node.runtime import daemon as daemons
from desmr_node.runtime.daemon import identity_of
from desmr_node.transport import tls
from desmr_node.transport.wire import admin_pb2 as pb

BOTH_ENDS = pytest.mark.parametrize("f", ["a", "z"])


@pytest.fixture
def made(network):
    """The network, with an impatient m; f is the faulty one."""

    def make(f, **settings):
        return network([f, "m", "n"], [(f, "m"), ("m", "n")], **({"patience": 0.6} | settings))

    return make


@pytest.fixture
def soon(monkeypatch):
    """Look for reasons at once."""
    monkeypatch.setattr(daemons, "_PROBE_AFTER", 0.1)
    monkeypatch.setattr(daemons, "_PROBE_AGAIN", 0.3)


async def seen(net, node, other, *words, state=None):
    """Wait until a node says this of another."""

    def said(machine):
        peer = machine.peers[other]
        return all(word in peer.reason for word in words) and state in (None, peer.state)

    await net.until(node, said, f"and never said {words} of {other}")


async def told(net, caplog, node, other, *words):
    """The operator sees it in the status, and in the log."""
    await seen(net, node, other, *words)
    async with net.admin(node) as call:
        peers = (await call("Status", pb.StatusRequest())).status.peers
        (peer,) = [peer for peer in peers if peer.node == other]
        assert peer.state != "up"
        assert peer.reason
    lines = [record.getMessage() for record in caplog.records if getattr(record, "peer", "") == other]
    assert any(all(word in line for word in words) for line in lines), lines


async def start_fails(net, node, *words):
    """A start here ends in failure everywhere it is heard of, with the words."""
    async with net.admin(node) as call:
        await call("Start", pb.StartRequest())
    await net.phase(Phase.FAILED, node)
    for word in words:
        assert word in net.reason(node)


# -- what a hello tells --------------------------------------------------------------------------------------


def _order(net, f, monkeypatch):
    features = ["income", "age", "rooms", "shops", "trees"]
    net.change(f, lambda document: document["data"].update(features=features))
    return ["in another order: feature 1 is ", "'age'", "'income'"]


def _number(net, f, monkeypatch):
    features = ["age", "income", "rooms", "shops"]
    net.change(f, lambda document: document["data"].update(features=features))
    return [" features", "'trees' at one only"]


def _response(net, f, monkeypatch):
    net.change(f, lambda document: document["data"].update(response="age"))
    return ["the response is ", "'price'", "'age'"]


def _setting(net, f, monkeypatch):
    net.change(f, lambda document: document.setdefault("fit", {}).update(inner=11))
    return ["[fit] inner is ", "10 at m", f"11 at {f}"]


def _seed(net, f, monkeypatch):
    net.change(f, lambda document: document.setdefault("fit", {}).update(seed=7))
    return ["[fit] seed is ", "0 at m", f"7 at {f}"]


def _version(net, f, monkeypatch):
    hello = Machine.hello

    def newer(self):
        ours = hello(self)
        if self.setup.node != f:
            return ours
        return replace(ours, version=VERSION + 2, oldest_version=VERSION + 1)

    monkeypatch.setattr(Machine, "hello", newer)
    return [f"{VERSION + 1} to {VERSION + 2}", f" {OLDEST_VERSION} to {VERSION}", "upgrade m"]


@BOTH_ENDS
@pytest.mark.parametrize("mistake", [_order, _number, _response, _setting, _seed, _version])
async def test_a_mismatch_that_a_hello_shows(made, monkeypatch, caplog, f, mistake):
    """A fit is refused at once, at whichever node it is asked for."""
    caplog.set_level(logging.INFO)
    net = made(f, patience=60.0)
    words = [*mistake(net, f, monkeypatch), f, "m"]
    await net.start()
    await net.until("n", lambda machine: machine.peers["m"].state == "up")
    await told(net, caplog, f, "m", *words)
    await told(net, caplog, "m", f, *words)
    await seen(net, f, "m", state="refused")
    await seen(net, "m", f, state="refused")
    async with asyncio.timeout(10):
        await start_fails(net, f, *words)
        await start_fails(net, "n", "m: ", *words)
        await start_fails(net, "m", *words)


async def test_mended_while_the_others_run(made, monkeypatch):
    """The node that was mended is started again; nobody else has to be."""
    net = made("a", patience=60.0)
    _setting(net, "a", monkeypatch)
    await net.start()
    await seen(net, "m", "a", "inner", state="refused")
    await net.stop("a")
    net.change("a", lambda document: document["fit"].update(inner=10))
    await net.start("a")
    await net.fit("n")
    assert {net.daemons[node].node.machine.phase for node in net.nodes} == {Phase.DONE}


@BOTH_ENDS
async def test_another_network(made, caplog, f):
    """Certificates carry the network's id: without them, the hello has it."""
    net = made(f, insecure=True, patience=60.0)
    net.change(f, lambda document: document.update(network="other"))
    await net.start()
    words = ["the network is ", "'test' ", "'other' ", f, "m"]
    await told(net, caplog, f, "m", *words)
    await told(net, caplog, "m", f, *words)
    await start_fails(net, "n", "m: ", *words)
    await start_fails(net, f, *words)


# -- what TLS tells ------------------------------------------------------------------------------------------


@pytest.fixture
def shows(monkeypatch):
    """Lets a node run with any identity: its own start would refuse these."""
    own = {}
    monkeypatch.setattr(daemons, "identity_of", lambda config: own.get(config.node) or identity_of(config))
    return own


async def fails_everywhere(net, f, there, here):
    """Asked for at both ends at once; m gives up after its patience, and n hears of it."""
    async with asyncio.timeout(10):
        await asyncio.gather(
            start_fails(net, f, "m has been away for 1 s", *there),
            start_fails(net, "n", f"m: {f} has been away for 1 s", *here),
        )
        await net.phase(Phase.FAILED, "m")
        assert f"{f} has been away for 1 s" in net.reason("m")


@BOTH_ENDS
async def test_a_certificate_of_another_authority(made, shows, soon, caplog, f):
    net = made(f)
    shows[f] = tls.Authority.create("test").member(f)
    await net.start()
    here, there = [f"{f} at ", "another authority"], ["m at ", "another authority"]
    await told(net, caplog, "m", f, *here)
    await told(net, caplog, f, "m", *there)
    await fails_everywhere(net, f, there, here)


@BOTH_ENDS
async def test_an_expired_certificate(made, shows, soon, caplog, f):
    net = made(f)
    authority = tls.Authority.load(net.folder / "authority")
    shows[f] = authority.member(f, days=1, now=datetime.now(UTC) - timedelta(days=2))
    await net.start()
    here, there = [f"{f} at ", "expired on "], ["m at ", "refuses our certificate", "expired"]
    await told(net, caplog, "m", f, *here)
    await told(net, caplog, f, "m", *there)
    await fails_everywhere(net, f, there, here)


async def test_a_listener_with_the_certificate_of_another_node(made, shows, soon, caplog):
    net = made("z")
    authority = tls.Authority.load(net.folder / "authority")
    shows["z"] = authority.member("x")
    await net.start()
    here = ["z at ", "shows the certificate of x", "correct the address in [[neighbours]]"]
    await told(net, caplog, "m", "z", *here)
    await fails_everywhere(net, "z", [], here)


async def test_a_caller_with_the_certificate_of_another_node(made, shows, soon, caplog):
    """It is who its certificate says: if that is nobody's neighbour, both ends are told so."""
    caplog.set_level(logging.INFO)
    net = made("a")
    authority = tls.Authority.load(net.folder / "authority")
    shows["a"] = authority.member("x")
    await net.start()
    there = ["x is not a neighbour of m", "add it to [[neighbours]] at m"]
    await told(net, caplog, "a", "m", *there)
    assert any(getattr(record, "peer", "") == "x" and there[0] in record.message for record in caplog.records)
    await fails_everywhere(net, "a", there, ["a at ", "shows the certificate of x"])


async def test_a_caller_with_the_certificate_of_another_neighbour(made, shows, caplog):
    """a shows n's: what it says of itself gives it away."""
    net = made("a", patience=60.0)
    authority = tls.Authority.load(net.folder / "authority")
    shows["a"] = authority.member("n")
    await net.start("a", "m")
    await told(net, caplog, "m", "n", "n calls itself 'a': its certificate and its node id must be the same")
    await told(net, caplog, "a", "m", "m refuses: n calls itself 'a'")
    await start_fails(net, "a", "m refuses: n calls itself 'a'")
    await start_fails(net, "m", "n calls itself 'a'")


@pytest.mark.parametrize("wrong", ["authority", "expired", "node", "network"])
async def test_a_node_looks_at_its_own_certificate_first(made, wrong):
    net = made("a")
    folder = net.paths["a"].parent
    authority = tls.Authority.load(net.folder / "authority")
    match wrong:
        case "authority":
            identity = tls.Authority.create("test").member("a")
        case "expired":
            identity = authority.member("a", days=1, now=datetime.now(UTC) - timedelta(days=2))
        case "node":
            identity = authority.member("m")
        case "network":
            net.change("a", lambda document: document.update(network="other"))
            identity = authority.member("a")
    (folder / "node.pem").write_bytes(identity.certificate_pem)
    (folder / "node.key").write_bytes(tls.private_pem(identity.key))
    with pytest.raises(ConfigError, match=r"node\.pem: "):
        await net.start("a")


async def test_a_renewed_certificate_is_used_without_a_restart(made):
    net = made("a", patience=60.0)
    await net.start()
    await net.up()
    folder = net.paths["a"].parent
    renewed = tls.Authority.load(net.folder / "authority").member("a")
    for name, data in (("node.key", tls.private_pem(renewed.key)), ("node.pem", renewed.certificate_pem)):
        (folder / name).write_bytes(data)
    await net.stop("m")
    await net.start("m")
    await net.fit("n")
    assert {net.daemons[node].node.machine.phase for node in net.nodes} == {Phase.DONE}


# -- who may talk --------------------------------------------------------------------------------------------


def _strike(net, node, other):
    """Take a neighbour off a node's list."""

    def edit(document):
        document["neighbours"] = [n for n in document["neighbours"] if n["id"] != other]

    net.change(node, edit)


async def test_a_caller_that_is_no_neighbour(made, soon, caplog):
    """m does not know of a: m and n go on by themselves, a is told what to do."""
    caplog.set_level(logging.INFO)
    net = made("a")
    _strike(net, "m", "a")
    await net.start()
    words = ["a is not a neighbour of m", "add it to [[neighbours]] at m", "or remove m from those of a"]
    await told(net, caplog, "a", "m", *words)
    assert any(getattr(record, "peer", "") == "a" and words[0] in record.message for record in caplog.records)
    assert net.daemons["m"].node.metrics.refused._value.get() >= 1
    await start_fails(net, "a", "m has been away for 1 s", *words)
    await net.until("n", lambda machine: machine.peers["m"].state == "up")
    async with net.admin("n") as call:
        await call("Start", pb.StartRequest())
    await net.phase(Phase.DONE, "m", "n")
    assert net.daemons["n"].result["members"] == ["m", "n"]


async def test_a_neighbour_that_does_not_know_us(made, soon, caplog):
    """m should dial z and has never heard of it: z finds m running, and says where to look."""
    net = made("z")
    _strike(net, "m", "z")
    await net.start()
    words = ["m answers at ", "does not dial us: see whether z is among its [[neighbours]]"]
    await told(net, caplog, "z", "m", *words)
    await start_fails(net, "z", "m has been away for 1 s", *words)


@BOTH_ENDS
async def test_plain_against_tls(made, soon, caplog, f):
    net = made(f)

    def bare(document):
        del document["tls"]
        document["insecure"] = True

    net.change(f, bare)
    await net.start()
    here, there = [f"{f} at ", "speaks no TLS"], ["m at ", "wants TLS and this node has no certificate"]
    await told(net, caplog, "m", f, *here)
    await told(net, caplog, f, "m", *there)
    await fails_everywhere(net, f, there, here)


@BOTH_ENDS
async def test_a_neighbour_that_is_not_running(made, soon, caplog, f):
    net = made(f)
    await net.start("m", "n")
    here = [f"{f} at ", "refuses the connection: start the node there"]
    await told(net, caplog, "m", f, *here)
    await start_fails(net, "n", f"m: {f} has been away for 1 s", *here)
    # it is expected still: once it is there, nothing has to be done at the others
    await net.start(f)
    await net.fit("n")
    assert {net.daemons[node].node.machine.phase for node in net.nodes} == {Phase.DONE}


async def test_no_node_needs_the_authority(made):
    net = made("a", patience=60.0)
    shutil.rmtree(net.folder / "authority")
    await net.start()
    await net.fit("a")
    assert net.daemons["n"].node.machine.phase is Phase.DONE
