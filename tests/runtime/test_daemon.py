"""Daemons over mutual TLS: what they end with, what they write, and how they end."""

import asyncio
import csv
import json
import logging
import os
import re
import signal
import stat
import sys
import threading
import urllib.request
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import grpc
import numpy as np
import pytest
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from prometheus_client.parser import text_string_to_metric_families

from desmr_node.config import load_node
from desmr_node.errors import DesmrError
from desmr_node.protocol import machine as machine_module
from desmr_node.protocol.machine import Phase
from desmr_node.protocol.messages import Abort, Done, Flood, Vector
from desmr_node.protocol.sealing import MaskKey
from desmr_node.runtime.audit import AuditFailed, AuditLog
from desmr_node.runtime.daemon import Daemon
from desmr_node.runtime.network import run_network
from desmr_node.runtime.worker import Worker
from desmr_node.transport import codec
from desmr_node.transport.streams import Streams
from desmr_node.transport.wire import admin_pb2 as pb


@pytest.fixture
def sent(monkeypatch):
    """Everything that the nodes give to their streams: (node, peer, bytes)."""
    record, send = [], Streams.send

    def recorded(self, peer, data):
        record.append((self.node, peer, data))
        send(self, peer, data)

    monkeypatch.setattr(Streams, "send", recorded)
    return record


@contextmanager
def held_up(daemon):
    """The node's computations wait until the block ends; yields an event set once one does."""
    waiting, go = asyncio.Event(), threading.Event()
    loop, compute, worker = asyncio.get_running_loop(), daemon.node.worker.compute, daemon.node.worker

    def slow(task):
        loop.call_soon_threadsafe(waiting.set)
        go.wait()
        return compute(task)

    worker.is_quick, worker.compute = lambda task: False, slow
    try:
        yield waiting
    finally:
        go.set()
        del worker.is_quick, worker.compute


async def called(net, node):
    async with net.admin(node) as call:
        await call("Start", pb.StartRequest())


# -- what a fit ends with --------------------------------------------------------------------------------


async def test_a_fit_ends_like_its_simulation_and_so_does_the_next(network):
    net = network("abcd", ("ab", "bc", "cd", "bd"))
    await net.start()
    simulated = run_network(net.config).documents()
    for number, caller in enumerate("ac", start=1):
        await net.fit(caller)
        for node in net.nodes:
            machine, result = net.daemons[node].node.machine, dict(net.daemons[node].result)
            assert (machine.phase, machine.fit) == (Phase.DONE, number)
            assert set(result.pop("bytes_sent")) == set(machine.peers)
            assert result == simulated[node] | {"fit": number}


async def test_the_first_fit_begins_by_itself(network):
    net = network(autostart=True)
    await net.start()
    await net.phase(Phase.DONE)
    assert {net.daemons[node].node.machine.fit for node in net.nodes} == {1}


async def test_nobody_repeats_itself_on_a_sound_network(network, monkeypatch):
    """A node that begins late gets what it could not keep yet, without having to find out by waiting."""
    monkeypatch.setattr(machine_module, "ASK_AFTER", 1_000.0)
    net = network("ab", ("ab",))
    await net.start()
    for node in 6 * "ab":
        await net.fit(node)
        assert net.daemons["b"].node.machine.phase is Phase.DONE


async def test_results_as_files(network):
    """In the data's own units, by the columns' names, for the owner's eyes."""
    net = network()
    await net.start()
    await net.fit("b")
    for node in net.nodes:
        state = net.state(node)
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in state.iterdir()}
        assert stat.S_IMODE(state.stat().st_mode) == 0o700
        assert {modes[name] for name in ("result.json", "coefficients.csv", "audit.jsonl", "lock")} == {0o600}
        result = json.loads((state / "result.json").read_text())
        assert result == net.daemons[node].result
        assert list(result["coefficients"]) == ["age", "income", "rooms", "shops", "trees"]
        assert (result["response"], result["members"], result["rows"]) == ("price", ["a", "b", "c"], 180)
        assert np.allclose(net.coefficients(node), [1.0, 2.0, 0.0, -1.5, 0.0, 0.0], atol=0.2)
        assert result["support"] == [k for k, v in result["coefficients"].items() if v]
        with (state / "coefficients.csv").open(newline="") as file:
            head, *lines = csv.reader(file)
        assert head == ["feature", "coefficient", "selected"]
        assert [line[0] for line in lines] == ["(intercept)", *result["coefficients"]]
        assert [float(line[1]) for line in lines] == net.coefficients(node)
        assert [line[0] for line in lines if line[2] == "yes"] == result["support"]
    # the errors are those of every node's own model on its own held-out rows
    errors = np.concatenate(
        [
            y - np.column_stack([np.ones(len(y)), X]) @ net.coefficients(node)
            for node in net.nodes
            for X, y in [net.holdout(node)]
        ]
    )
    for node in net.nodes:
        told = net.daemons[node].result["holdout"]
        assert told["rows"] == 75
        assert told["rmse"] == pytest.approx(np.sqrt(np.mean(errors**2)), rel=1e-6)
        assert told["mae"] == pytest.approx(np.mean(np.abs(errors)), rel=1e-6)


# -- the audit log ---------------------------------------------------------------------------------------


async def test_the_audit_log_is_what_was_sent(network, sent):
    net = network()
    await net.start()
    await net.fit("a")
    await net.stop()
    limits = codec.Limits.of(5, net.config.fit.lambdas)
    kinds = {Vector: {"vector"}, Flood: {"introductions", "masked sums"}}
    for node in net.nodes:
        lines = [json.loads(line) for line in (net.state(node) / "audit.jsonl").read_text().splitlines()]
        told = [(peer, line) for line in lines for peer in line["to"]]
        wire = [(peer, data) for sender, peer, data in sent if sender == node]
        assert len(told) == len(wire)
        for (to, line), (peer, data) in zip(told, wire, strict=True):
            assert (to, line["bytes"], line["sha256"]) == (peer, len(data), sha256(data).hexdigest())
            message = codec.decode(data, limits)
            assert line["kind"] in kinds.get(type(message), {type(message).__name__.lower()})
            place = {"fit", "outer", "inner", "shape", "sum", "origins"}
            assert set(line) - place == {"time", "to", "kind", "bytes", "sha256"}
        assert {line["kind"] for line in lines} == {
            *("hello", "introductions", "masked sums", "vector", "ask", "done")
        }


@pytest.mark.parametrize("how", [("/dev/full", os.O_WRONLY), ("/dev/null", os.O_RDONLY)])
async def test_a_node_that_cannot_audit_sends_nothing(network, sent, caplog, how):
    """It calls the fit off, and falls silent until the log can be written."""
    net = network()
    await net.start()
    await net.fit("a")
    audit = net.daemons["a"].node._audit
    with held_up(net.daemons["a"]) as waiting:
        await called(net, "c")
        await waiting.wait()
        kept = os.dup(audit._file)
        bad = os.open(*how)
        os.dup2(bad, audit._file)
        os.close(bad)
        lines = len((net.state("a") / "audit.jsonl").read_text().splitlines())
        sent.clear()
    await net.phase(Phase.FAILED)
    why = "No space left on device" if how[0] == "/dev/full" else "Bad file descriptor"
    reason = f"the audit log cannot be written ({why}): nothing more is sent"
    assert {node: net.reason(node) for node in net.nodes} == {
        "a": reason,
        "b": f"a: {reason}",
        "c": f"a: {reason}",
    }
    assert reason in caplog.text
    await net.until("b", lambda m: m.peers["a"].state == "away")
    assert "a cannot write its audit log" in caplog.text
    limits = codec.Limits.of(5, net.config.fit.lambdas)
    said = [codec.decode(data, limits) for sender, _, data in sent if sender == "a"]
    assert said == [Abort(2, "a", reason)]

    os.dup2(kept, audit._file)
    os.close(kept)
    assert len((net.state("a") / "audit.jsonl").read_text().splitlines()) == lines
    await net.fit("b")
    assert {net.daemons[node].node.machine.phase for node in net.nodes} == {Phase.DONE}
    assert len({tuple(net.daemons[node].result["members"]) for node in net.nodes}) == 1


def test_no_half_lines(tmp_path):
    log = AuditLog(tmp_path / "audit.jsonl")
    log.write(Done(1), b"one", ["a"])
    whole = (tmp_path / "audit.jsonl").read_text()
    real, os_write = os.write, {}

    def short(file, text):
        os_write["tried"] = True
        return real(file, text[:10])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "write", short)
        with pytest.raises(AuditFailed, match="No space left on device"):
            log.write(Done(2), b"two", ["a"])
    assert os_write
    assert (tmp_path / "audit.jsonl").read_text() == whole
    log.close()
    with pytest.raises(AuditFailed):  # and not into whatever file has the number now
        log.write(Done(3), b"three", ["a"])
    (tmp_path / "folder").mkdir()
    with pytest.raises(AuditFailed, match="mend its permissions"):
        AuditLog(tmp_path / "folder")


async def test_the_audit_log_may_be_moved_away_while_the_node_runs(network, sent):
    """As logrotate does: no line is lost, and none goes to the old file once it has moved."""
    net = network()
    await net.start()
    await net.fit("a")
    log, old = (net.state("a") / name for name in ("audit.jsonl", "audit.jsonl.1"))
    log.rename(old)
    before = old.read_text()
    await net.fit("b")
    log.unlink()  # and not even a file that is gone keeps it from writing
    sent.clear()
    await net.fit("c")
    await net.stop()
    assert old.read_text() == before
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["sha256"] for line in lines for _ in line["to"]] == [
        sha256(data).hexdigest() for sender, _, data in sent if sender == "a"
    ]


def test_an_audit_log_that_was_moved_and_cannot_be_made_again(tmp_path):
    log = AuditLog(tmp_path / "audit.jsonl")
    log.write(Done(1), b"one", ["a"])
    (tmp_path / "audit.jsonl").rename(tmp_path / "audit.jsonl.1")
    (tmp_path / "audit.jsonl").mkdir()
    for _ in range(2):
        with pytest.raises(AuditFailed, match=r"\(Is a directory\): nothing more is sent"):
            log.write(Done(2), b"two", ["a"])
    (tmp_path / "audit.jsonl").rmdir()
    log.write(Done(3), b"three", ["a"])
    log.close()
    assert [len(path.read_text().splitlines()) for path in sorted(tmp_path.iterdir())] == [1, 1]


# -- declining, stopping, leaving ------------------------------------------------------------------------


async def test_everybody_is_told_who_declined(network):
    net = network()
    net.change("c", lambda document: document.update(floors={"rows": 61}))
    await net.start()
    await net.fit("a")
    reason = "declines: it holds fewer rows than its floor ([floors] rows)"
    assert [net.reason(node) for node in "abc"] == [f"c: {reason}", f"c: {reason}", reason]
    assert "60" not in net.reason("a")  # how many it holds is nobody's business


async def test_an_operator_stops_a_fit_for_all(network):
    net = network()
    await net.start()
    await net.up()
    with held_up(net.daemons["b"]) as waiting:
        await called(net, "b")
        await waiting.wait()
        async with net.admin("c") as call:
            await call("Stop", pb.StopRequest(reason="lunch"))
        await net.phase(Phase.FAILED)
    assert [net.reason(node) for node in "abc"] == ["c: lunch", "c: lunch", "lunch"]
    await net.fit("a")  # and the next one is not impaired
    assert {net.daemons[node].node.machine.phase for node in net.nodes} == {Phase.DONE}


_PROGRAM = "import sys; from desmr_node.cli import desmr_node; sys.exit(desmr_node())"


async def process(path, *options):
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _PROGRAM, "--config", str(path), *options),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


@pytest.mark.parametrize("form", ["text", "json"])
async def test_a_daemon_that_is_told_to_end_in_mid_fit(network, form):
    """Exit code 0, the others wait until it is back, and the log is what it was asked to be."""
    net = network()
    net.change("a", lambda document: document.update(log={"format": form, "level": "debug"}))
    daemon = await process(net.paths["a"])
    await net.start("b", "c")
    await net.up("b", "c")
    with held_up(net.daemons["c"]) as waiting:
        await called(net, "b")
        await waiting.wait()
        await net.until("b", lambda m: m.flood.number == 1 and "a" in m.flood.records)
        daemon.send_signal(signal.SIGTERM)
        out, err = await daemon.communicate()
        await net.until("b", lambda m: m.peers["a"].state == "away")
    assert daemon.returncode == 0
    assert not (net.state("a") / "admin.sock").exists()
    assert b"fit 1 is taken up again at the next start" in err
    await net.start("a")
    await net.phase(Phase.DONE)
    assert {net.daemons[node].result["fit"] for node in "abc"} == {1}
    assert out == b""
    assert b"Traceback" not in err
    lines = err.decode().splitlines()
    if form == "json":
        records = [json.loads(line) for line in lines]
        assert all({"time", "level", "node", "message"} <= set(record) for record in records)
        assert {record["node"] for record in records} == {"a"}
        messages = [record["message"] for record in records]
        assert {record["fit"] for record in records if record["message"] == "fit 1 begins"} == {1}
    else:
        levels = {tuple(line.split()[1:3]) for line in lines}
        assert levels <= {("info", "a:"), ("debug", "a:")}
        messages = [line.split(" a: ")[1] for line in lines]
    assert messages[0].startswith("rows: 60; features: 5; neighbours: 1; admin at unix:")
    assert "b is up" in messages
    assert "members: a, b, c" in messages
    assert "stopping: SIGTERM" in messages
    assert "fit 1 is taken up again at the next start" in messages


async def test_one_fit_and_out(network):
    """`--once`: the exit code is the fit's, and nobody is left behind who still needs the node."""
    net = network(autostart=True)
    once = [await process(net.paths[node], "--once") for node in "ab"]
    await net.start("c")
    await net.phase(Phase.DONE, "c")
    ended = await asyncio.gather(*(daemon.communicate() for daemon in once))
    assert [daemon.returncode for daemon in once] == [0, 0], ended
    assert json.loads((net.state("a") / "result.json").read_text())["members"] == ["a", "b", "c"]


async def test_one_fit_that_failed(network):
    net = network(floors={"rows": 61}, autostart=True)
    once = await process(net.paths["a"], "--once")
    await net.start("b", "c")
    _, err = await once.communicate()
    assert once.returncode == 3, err
    assert b"declines" in err


# -- what cannot be started ------------------------------------------------------------------------------


async def refusal(net, node):
    """The sentence with which a daemon refuses to start; the process would print it and end with 1."""
    daemon = Daemon(load_node(net.paths[node], environ={}))
    try:
        with pytest.raises(DesmrError) as refused:
            await daemon.start()
    finally:
        await daemon.close()
    sentence = str(refused.value)
    assert "\n" not in sentence
    return sentence


@pytest.mark.parametrize("table", ["listen", "admin", "metrics"])
async def test_a_port_in_use(network, table):
    net = network()
    taken = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    async with taken:
        address = f"127.0.0.1:{taken.sockets[0].getsockname()[1]}"
        where = {"listen": address} if table == "listen" else {table: {"listen": address}}
        net.change("a", lambda document: document.update(where))
        sentence = await refusal(net, "a")
        assert address in sentence
        assert ("listen" if table == "listen" else f"[{table}] listen") in sentence
        assert "in use" in sentence
        assert "choose another" in sentence
        daemon = await process(net.paths["a"])
        out, err = await daemon.communicate()
        assert (daemon.returncode, out) == (1, b"")
        assert err.decode().splitlines()[-1] == f"desmr-node: {sentence}"
        assert b"Traceback" not in err


async def test_a_state_folder_that_cannot_be_written(network):
    net = network()
    (net.folder / "file").write_text("")
    state = str(net.folder / "file" / "state")
    net.change("a", lambda document: document.update(state=state))
    sentence = await refusal(net, "a")
    assert sentence.startswith(f"state = '{state}' cannot be written (Not a directory): choose a folder")


async def test_an_audit_log_that_cannot_be_opened(network):
    net = network()
    (net.state("a") / "audit.jsonl").mkdir(parents=True)
    sentence = await refusal(net, "a")
    assert "audit.jsonl: the audit log cannot be written (Is a directory)" in sentence


async def test_one_daemon_per_state_folder(network):
    """A second one would take the first one's admin socket away and write into its audit log."""
    net = network()
    await net.start("a")
    sentence = await refusal(net, "a")
    assert "is another desmr-node's, which is running: stop that one first" in sentence
    async with net.admin("a") as call:
        assert (await call("Status", pb.StatusRequest())).status.node == "a"


async def test_a_socket_that_was_left_behind_is_no_obstacle(network):
    """After a crash, or a kill -9."""
    net = network()
    daemon = await process(net.paths["a"])
    await net.start("b")
    await net.until("b", lambda m: m.peers["a"].state == "up")
    daemon.kill()
    await daemon.communicate()
    assert (net.state("a") / "admin.sock").exists()
    await net.start("a", "c")
    await net.fit("a")
    assert net.daemons["a"].node.machine.phase is Phase.DONE


# -- the operator's API ----------------------------------------------------------------------------------


async def test_status_start_stop_watch_and_result(network):
    net = network()
    await net.start()
    await net.up()
    async with net.admin("b") as call:
        status = (await call("Status", pb.StatusRequest())).status
        assert (status.network, status.node, status.phase, status.fit) == ("test", "b", "idle", 0)
        assert [(peer.node, peer.state, peer.reason) for peer in status.peers] == [
            ("a", "up", ""),
            ("c", "up", ""),
        ]
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call("Result", pb.ResultRequest())
        assert refused.value.code() is grpc.StatusCode.NOT_FOUND

        watches = [aiter(call("Watch", pb.WatchRequest(until_end=True))) for _ in range(3)]
        assert {(await anext(watch)).status.phase for watch in watches} == {"idle"}
        with held_up(net.daemons["b"]) as waiting:
            await call("Start", pb.StartRequest())
            await waiting.wait()
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await call("Start", pb.StartRequest())
            assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
            assert refused.value.details() == "fit 1 is under way (computing): wait for it, or stop it"
            status = (await call("Status", pb.StatusRequest())).status
            assert (status.phase, status.members, status.fit) == ("computing", 3, 1)
        for watch in watches:
            async with asyncio.timeout(10):
                seen = [answer.status async for answer in watch]
            assert seen[-1].phase == "done"
            assert seen[-1].history[-1].objective > 0
        status = (await call("Status", pb.StatusRequest())).status
        assert status.message == net.reason("b")
        assert status.memory_bytes > 1e6
        assert all(peer.bytes_sent > 0 < peer.messages_received for peer in status.peers)
        answer = await call("Result", pb.ResultRequest())
        assert json.loads(answer.json) == json.loads((net.state("b") / "result.json").read_text())


async def test_stop_with_shutdown_ends_the_daemon(network):
    net = network()
    await net.start("a", "b")
    async with net.admin("a") as call:
        await call("Stop", pb.StopRequest(shutdown=True))
        async with asyncio.timeout(10):
            assert await net.runs["a"] == 0
    await net.stop("a")
    await net.until("b", lambda m: m.peers["a"].state == "away")


async def test_health_and_reflection(network):
    net = network()
    await net.start("a")
    async with grpc.aio.insecure_channel(net.daemons["a"].config.admin.listen) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        serving, not_serving = (
            health_pb2.HealthCheckResponse.SERVING,
            health_pb2.HealthCheckResponse.NOT_SERVING,
        )
        for service in ("", "desmr.admin.v1.Admin", "desmr.peer.v1.Peer"):
            answer = await health.Check(health_pb2.HealthCheckRequest(service=service))
            assert answer.status == serving
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await health.Check(health_pb2.HealthCheckRequest(service="nonsense"))
        assert refused.value.code() is grpc.StatusCode.NOT_FOUND

        reflection = reflection_pb2_grpc.ServerReflectionStub(channel)
        asked = iter([reflection_pb2.ServerReflectionRequest(list_services="")])
        async for answer in reflection.ServerReflectionInfo(asked):
            names = {service.name for service in answer.list_services_response.service}
        assert {"desmr.admin.v1.Admin", "desmr.peer.v1.Peer", "grpc.health.v1.Health"} <= names
        asked = iter([reflection_pb2.ServerReflectionRequest(file_containing_symbol="desmr.admin.v1.Admin")])
        async for answer in reflection.ServerReflectionInfo(asked):
            assert answer.file_descriptor_response.file_descriptor_proto

        watch = health.Watch(health_pb2.HealthCheckRequest(service=""))
        assert (await watch.read()).status == serving
        ending = asyncio.create_task(net.stop("a"))
        assert (await watch.read()).status == not_serving
        await ending


# -- metrics ---------------------------------------------------------------------------------------------


async def test_metrics(network):
    net = network()
    net.change("b", lambda document: document.update(metrics={"listen": "127.0.0.1:0"}))
    await net.start("a", "b")
    url = f"http://127.0.0.1:{net.daemons['b'].metrics_port}/metrics"

    def scrape():
        with urllib.request.urlopen(url) as page:
            families = text_string_to_metric_families(page.read().decode())
            return {
                (sample.name, *sample.labels.values()): sample.value
                for family in families
                for sample in family.samples
            }

    await net.until("b", lambda m: m.peers["a"].state == "up")
    page = await asyncio.to_thread(scrape)
    assert (page["desmr_peer_up", "a"], page["desmr_peer_up", "c"]) == (1.0, 0.0)
    assert (page["desmr_phase_idle",], page["desmr_fit",]) == (1.0, 0.0)
    assert ("desmr_spread",) not in page

    await net.start("c")
    await net.fit("b")
    before = {peer: replace(net.daemons["b"].streams.traffic(peer)) for peer in "ac"}
    page = await asyncio.to_thread(scrape)
    last = net.daemons["b"].result["history"][-1]
    assert page["desmr_phase_done",] == page["desmr_fit",] == 1.0
    assert page["desmr_spread",] == last["spread"]
    assert page["desmr_changed",] == last["changed"]
    assert page["desmr_objective",] == last["objective"]
    rounds = page["desmr_round_seconds_count",]
    assert page["desmr_round_seconds_bucket", "+Inf"] == rounds > 10
    assert 0 < page["desmr_round_seconds_sum",] / rounds < 1.0
    for peer in "ac":
        after = net.daemons["b"].streams.traffic(peer)
        assert page["desmr_peer_up", peer] == 1.0
        sent, received = (page[f"desmr_{way}_bytes_total", peer] for way in ("sent", "received"))
        assert 1_000 < before[peer].bytes_sent <= sent <= after.bytes_sent
        assert 1_000 < before[peer].bytes_received <= received <= after.bytes_received
    assert page["desmr_refused_streams_total",] == 0.0
    assert page["desmr_memory_bytes",] > 1e6


async def test_every_metric_is_on_the_operators_page(network):
    net = network()
    net.change("b", lambda document: document.update(metrics={"listen": "127.0.0.1:0"}))
    await net.start()
    await net.fit("b")
    registry = net.daemons["b"].node.metrics.registry
    served = {family.name + ("_total" if family.type == "counter" else "") for family in registry.collect()}
    page = (Path(__file__).parents[2] / "docs" / "operations.md").read_text(encoding="utf-8")
    table = page.split("\n## Metrics\n", 1)[1].split("\n## ", 1)[0]
    assert set(re.findall(r"`(desmr_\w+)", table)) == served


# -- secrets ---------------------------------------------------------------------------------------------


async def test_no_key_is_written_or_shown_anywhere(network, monkeypatch, caplog):
    caplog.set_level(logging.DEBUG)
    made, generate = [], MaskKey.generate

    def generated():
        made.append(generate())
        return made[-1]

    monkeypatch.setattr(MaskKey, "generate", generated)
    net = network()
    await net.start()
    await net.fit("a")
    secrets = set()
    for node in net.nodes:
        pem = net.paths[node].with_name("node.key").read_bytes()
        secrets |= set(pem.decode().splitlines()[1:-1])
        number = load_pem_private_key(pem, None).private_numbers().private_value
        secrets |= {str(number), f"{number:x}"}
    assert len(made) == 3
    for key in made:
        (private,) = [getattr(key, name) for name in ("_private", "private") if hasattr(key, name)]
        raw = private.private_bytes_raw()
        secrets |= {raw.hex(), repr(raw)[2:-1], str(list(raw))[1:-1]}
    async with net.admin("a") as call:
        seen = [str(await call("Status", pb.StatusRequest())), str(await call("Result", pb.ResultRequest()))]
    seen += [caplog.text, *map(repr, made)]
    for node in net.nodes:
        daemon = net.daemons[node]
        for path in filter(Path.is_file, net.state(node).iterdir()):
            if path.name.startswith("snapshot"):  # holds the fit's mask key, and says so: for its owner alone
                assert path.stat().st_mode & 0o777 == 0o600
            else:
                seen.append(path.read_text())
        shown = (daemon, daemon.node, daemon.streams, daemon.node.machine, daemon.node.machine._seal)
        seen += map(repr, (*shown, vars(daemon), vars(daemon.node.machine), daemon.config))
    for text in seen:
        assert not [secret for secret in secrets if secret in text]


async def test_rows_stay_with_the_worker(network, sent):
    """No value of anybody's table is among the bytes that anybody sent."""
    net = network()
    await net.start()
    await net.fit("a")
    cells = {value.tobytes() for node in net.nodes for array in net.rows(node) for value in np.ravel(array)}
    for _, _, data in sent:
        words = {data[k : k + 8] for k in range(len(data) - 7)}
        assert not words & cells


async def test_a_bug_of_ours_ends_the_process_and_says_so(network, monkeypatch):
    """Nothing can be trusted any more after that."""
    net = network()
    await net.start()
    await net.up()

    def broken(self, task):
        raise ZeroDivisionError("ours")

    monkeypatch.setattr(Worker, "compute", broken)
    await called(net, "a")
    for node in net.nodes:
        with pytest.raises(ZeroDivisionError):
            await net.runs[node]
