"""Daemons over mutual TLS: what they end with, what they write, and how they end."""

from desmr_node.protocol.machine import Phase
from desmr_node.runtime.network import run_network


async def test_a_fit_ends_like_its_simulation_and_so_does_the_next(network):
    net = network()
    await net.start()
    simulated = run_network(net.config).documents()
    for number, caller in enumerate("ac", start=1):
        await net.fit(caller)
        for node in net.nodes:
            machine, result = net.daemons[node].node.machine, dict(net.daemons[node].result)
            assert (machine.phase, machine.fit) == (Phase.DONE, number)
            assert set(result.pop("bytes_sent")) == set(machine.peers)
            assert result == simulated[node] | {"fit": number}
