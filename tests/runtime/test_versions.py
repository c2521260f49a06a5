"""Daemons of different releases over mutual TLS: the same bits where they get along, a reason where not.

In the network f - m - n the node f is of another release, at either end of its edge: the smaller id dials.
"""

import logging
from importlib.metadata import version

import pytest

from desmr_node.config import NodeConfig
from desmr_node.core.spec import FitSpec
from desmr_node.protocol.machine import Phase, Setup
from desmr_node.runtime import daemon as daemons
from desmr_node.runtime.network import run_network
from desmr_node.runtime.settings import default_settings, settings_of
from desmr_node.transport.wire import admin_pb2 as pb

BOTH_ENDS = pytest.mark.parametrize("f", ["a", "z"])
ONE_TO_TWO = {"oldest_version": 1, "version": 2}
TWO_TO_THREE = {"oldest_version": 2, "version": 3}


@pytest.fixture
def releases(monkeypatch):
    """Node to what sets it apart from a release of wire version 1; settings and defaults are added."""
    others: dict[str, dict] = {}

    def setup(**made):
        made |= {"oldest_version": 1, "version": 1, "method": 1}
        for name, value in others.get(made["node"], {}).items():
            made[name] = made[name] | value if isinstance(value, dict) else value
        return Setup(**made)

    monkeypatch.setattr(daemons, "Setup", setup)
    return others


@pytest.fixture
def made(network):
    def make(f):
        return network([f, "m", "n"], [(f, "m"), ("m", "n")], patience=60.0)

    return make


async def peers(net, node):
    """A node's neighbours as its operator sees them."""
    async with net.admin(node) as call:
        return {peer.node: peer for peer in (await call("Status", pb.StatusRequest())).status.peers}


async def refused(net, caplog, f, at_f, at_m):
    """Both ends say why, in the status and in the log, and a fit is refused at once."""
    for node, other, says in ((f, "m", at_f), ("m", f, at_m)):
        await net.until(node, lambda machine, other=other: machine.peers[other].state == "refused")
        assert says in net.peer(node, other).reason
        peer = (await peers(net, node))[other]
        assert says in peer.reason
        assert peer.wire_version == 0
        lines = [record.getMessage() for record in caplog.records if getattr(record, "peer", "") == other]
        assert any(says in line for line in lines)
        async with net.admin(node) as call:
            await call("Start", pb.StartRequest())
        await net.phase(Phase.FAILED, node)
        assert says in net.reason(node)


async def fits_like_its_simulation(net):
    await net.fit("n")
    simulated = run_network(net.config).documents()
    for node in net.nodes:
        result = dict(net.daemons[node].result)
        del result["bytes_sent"]
        assert result == simulated[node] | {"fit": result["fit"]}


@BOTH_ENDS
async def test_a_newer_node_with_a_new_setting_at_its_default(made, releases, caplog, f):
    caplog.set_level(logging.INFO)
    net = made(f)
    new = {"settings": {"depth": "2"}, "defaults": {"depth": "2"}}
    releases[f] = ONE_TO_TWO | new | {"release": "9.9.9"}
    await net.start()
    await fits_like_its_simulation(net)
    ours = version("desmr-node")
    seen = await peers(net, "m")
    assert {name: (peer.release, peer.wire_version) for name, peer in seen.items()} == {
        f: ("9.9.9", 1),
        "n": (ours, 1),
    }
    messages = [record.getMessage() for record in caplog.records]
    assert f"{f} is up (release 9.9.9, wire version 1; {ours} here)" in messages
    assert f"m is up (release {ours}, wire version 1; 9.9.9 here)" in messages
    assert "m is up" in messages  # says n
    assert (await peers(net, f))["m"].release == ours


@BOTH_ENDS
async def test_a_newer_node_with_a_new_setting_that_was_changed(made, releases, caplog, f):
    net = made(f)
    releases[f] = ONE_TO_TWO | {"settings": {"depth": "3"}, "defaults": {"depth": "2"}}
    await net.start()
    says = (
        f"[fit] depth is 3 at {f}, and m runs an older release that does not know it: "
        "upgrade m, or set the default 2"
    )
    await refused(net, caplog, f, says, says)
    assert not [line for line in caplog.messages if line.startswith(f"{f} is up")]
    # set to the default, it is let in, and nobody else has to do anything
    await net.stop(f)
    releases[f]["settings"] = {"depth": "2"}
    await net.start(f)
    await fits_like_its_simulation(net)


@BOTH_ENDS
async def test_too_far_apart_until_one_is_upgraded(made, releases, caplog, f):
    """f is older than what m still speaks; restarted as the next release, it comes up at m, which runs on."""
    net = made(f)
    releases["m"] = releases["n"] = TWO_TO_THREE
    await net.start()
    running = net.daemons["m"]
    await refused(
        net,
        caplog,
        f,
        f"{f} speaks wire versions 1 to 1 and m 2 to 3: upgrade {f}",
        f"m speaks wire versions 2 to 3 and {f} 1 to 1: upgrade {f}",
    )
    await net.stop(f)
    releases[f] = ONE_TO_TWO
    await net.start(f)
    await fits_like_its_simulation(net)
    assert net.daemons["m"] is running
    assert {name: peer.wire_version for name, peer in (await peers(net, "m")).items()} == {f: 2, "n": 3}


@BOTH_ENDS
async def test_another_method(made, releases, caplog, f):
    net = made(f)
    releases[f] = ONE_TO_TWO | {"method": 2}
    await net.start()
    says = ": a fit needs the same at every member; upgrade m"
    await refused(
        net,
        caplog,
        f,
        f"{f} computes by method 2 and m by method 1{says}",
        f"m computes by method 1 and {f} by method 2{says}",
    )


async def test_a_changed_setting_that_everybody_knows_is_no_matter_of_defaults(made, releases):
    """All three are of the newer release: then a new setting may be anything, as long as it is the same."""
    net = made("a")
    for node in net.nodes:
        releases[node] = ONE_TO_TWO | {"settings": {"depth": "3"}, "defaults": {"depth": "2"}}
    await net.start()
    await fits_like_its_simulation(net)
    assert (await peers(net, "m"))["a"].wire_version == 2


def test_the_defaults_are_those_of_the_models():
    assert default_settings() == settings_of(FitSpec(), NodeConfig.model_fields["seed"].default)
    assert default_settings().keys() == {name.rstrip("_") for name in FitSpec.model_fields} | {"seed"}
    assert (default_settings()["penalty"], default_settings()["seed"]) == ('"scad"', "0")
