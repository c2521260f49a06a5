"""Why an edge does not come up: each cause, brought about for real where that is possible."""

import asyncio
import socket
import ssl
import threading
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime, timedelta

import grpc
import pytest

from desmr_node.transport import probe as probing
from desmr_node.transport import tls
from desmr_node.transport.probe import probe

NOW = datetime.now(UTC)
LONG_AGO = NOW - timedelta(days=1000)


@asynccontextmanager
async def node(identity):
    """A gRPC server as that node, or a plain one; yields its address."""
    server = grpc.aio.server()
    if identity is None:
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        port = server.add_secure_port("127.0.0.1:0", tls.server_credentials(lambda: identity))
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


@asynccontextmanager
async def listener(behaviour, context=None):
    """Something that is no node: runs ``behaviour(reader, writer)`` for every connection."""

    async def serve(reader, writer):
        try:
            await behaviour(reader, writer)
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await server.wait_closed()


def server_context(folder, identity, believes):
    """For a TLS server that is not gRPC's."""
    folder.mkdir(exist_ok=True)
    pair = folder / "pair.pem"
    tls.write_private(pair, tls.private_pem(identity.key) + identity.certificate_pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair)
    if believes is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=believes.decode())
    return context


@contextmanager
def outspoken(context):
    """A TLS server on blocking sockets: unlike gRPC and asyncio, it says by an alert why it hangs up."""

    def serve():
        while True:
            connection, _ = listening.accept()
            with connection, suppress(OSError):
                if over.is_set():
                    return
                with context.wrap_socket(connection, server_side=True) as secured:
                    secured.recv(1)

    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = listening.getsockname()
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{address[1]}"
        finally:
            over.set()
            socket.create_connection(address).close()
            thread.join()


async def silence(reader, writer):
    await reader.read()
    while await reader.read():
        pass


async def hang_up(reader, writer):
    pass


async def web_page(reader, writer):
    await reader.read(10)
    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    await writer.drain()


def misled(authority):
    """Believes the right authority, shows the certificate of another one."""
    other = tls.Authority.create("crime").member("mountain")
    return tls.Identity("mountain", "crime", other.certificate, (authority.certificate,), other.key)


async def test_fine(identities):
    async with node(identities["pacific"]) as address:
        found = await probe(address, "pacific", identities["mountain"])
    certificate = identities["pacific"].certificate
    assert (found.ok, found.kind) == (True, "fine")
    assert found.valid_from == certificate.not_valid_before_utc
    assert found.valid_until == certificate.not_valid_after_utc
    assert found.days_left == 824
    until = tls.moment(certificate.not_valid_after_utc)
    assert found.sentence == (
        f"pacific at {address} answers, and its certificate is valid until {until} (824 days)"
    )


async def test_a_certificate_about_to_expire_is_mentioned(authority, identities):
    async with node(authority.member("pacific", days=10)) as address:
        found = await probe(address, "pacific", identities["mountain"])
    assert found.ok
    assert found.days_left == 9
    assert found.sentence.endswith("(9 days): have it issued again soon")


async def test_names_resolve(identities):
    """localhost may have two addresses of which only one listens."""
    async with node(identities["pacific"]) as address:
        found = await probe(f"localhost:{address.rpartition(':')[2]}", "pacific", identities["mountain"])
    assert found.kind == "fine"


@pytest.mark.parametrize("address", ["", "x", "host:", ":50051", "host:port", "host:0", "host:65536", "h:²"])
async def test_bad_address(identities, address):
    found = await probe(address, "pacific", identities["mountain"])
    assert (found.ok, found.kind) == (False, "bad-address")
    assert found.sentence.endswith("write the address in [[neighbours]] as host:port")


async def test_unresolved(identities, monkeypatch):
    async def unknown(*args, **kwargs):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", unknown)
    found = await probe("pacific.invalid:50051", "pacific", identities["mountain"])
    assert found.kind == "unresolved"
    assert "pacific.invalid does not resolve (Name or service not known): correct" in found.sentence


async def test_a_label_that_cannot_be_a_name(identities):
    found = await probe("a" * 70 + "é.invalid:50051", "pacific", identities["mountain"])
    assert found.kind == "unresolved"


async def test_refused(identities):
    with socket.socket() as taken:  # bound, so nobody else gets the port, but not listening
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        found = await probe(address, "pacific", identities["mountain"])
    assert found.kind == "refused"
    assert found.sentence.startswith(f"pacific at {address} refuses the connection: start the node there")
    assert (found.valid_from, found.valid_until, found.days_left) == (None, None, None)


async def test_unreachable(identities, monkeypatch):
    async def no_route(*args):
        raise OSError(101, "Network is unreachable")

    monkeypatch.setattr(asyncio.get_running_loop(), "sock_connect", no_route)
    found = await probe("127.0.0.1:50051", "pacific", identities["mountain"])
    assert found.kind == "unreachable"
    assert "(Network is unreachable)" in found.sentence


async def test_packets_dropped(identities, monkeypatch):
    async def never(*args):
        await asyncio.get_running_loop().create_future()

    monkeypatch.setattr(asyncio.get_running_loop(), "sock_connect", never)
    found = await probe("127.0.0.1:50051", "pacific", identities["mountain"], timeout=0.05)
    assert found.kind == "timed-out"
    assert found.sentence == (
        "pacific at 127.0.0.1:50051 did not answer within 0.05 s: "
        "see whether it is up and whether a firewall drops the packets"
    )


@pytest.mark.parametrize("name", ["mountain", None])
async def test_it_takes_the_call_and_says_nothing(identities, name):
    async with listener(silence) as address:
        found = await probe(address, "pacific", identities.get(name), timeout=0.1)
    assert found.kind == "timed-out"
    assert "took the connection and then said nothing within 0.1 s" in found.sentence


@pytest.mark.parametrize("behaviour", [hang_up, web_page])
@pytest.mark.parametrize("name", ["mountain", None])
async def test_something_else_listens(identities, behaviour, name):
    async with listener(behaviour) as address:
        found = await probe(address, "pacific", identities.get(name))
    assert found.kind == "stranger"
    assert found.sentence.startswith(f"pacific at {address} is no desmr-node")


async def test_plain(identities):
    async with node(None) as address:
        found = await probe(address, "pacific", identities["mountain"])
    assert found.kind == "plain"
    assert found.sentence.startswith(f"pacific at {address} speaks no TLS: fill in [tls] there")


async def test_plain_on_both_ends_is_fine():
    async with node(None) as address:
        found = await probe(address, "pacific", None)
    assert (found.ok, found.kind) == (True, "fine")


async def test_we_are_plain_and_it_is_not(identities):
    async with node(identities["pacific"]) as address:
        found = await probe(address, "pacific", None)
    assert found.kind == "wants-tls"
    assert found.sentence.endswith("wants TLS and this node has no certificate: fill in [tls] here")
    assert found.days_left == 824


async def test_other_node(identities):
    async with node(identities["mountain"]) as address:
        found = await probe(address, "pacific", identities["mountain"])
    assert found.kind == "other-node"
    assert found.sentence == (
        f"pacific at {address} shows the certificate of mountain: correct the address in [[neighbours]], "
        "or install the certificate of pacific there"
    )


async def test_other_authority(identities):
    async with node(tls.Authority.create("crime").member("pacific")) as address:
        found = await probe(address, "pacific", identities["mountain"])
    assert found.kind == "other-authority"
    assert "a certificate of another authority (in the name of pacific)" in found.sentence


async def test_other_network(authority, identities):
    """One authority for two networks, as a company might have."""
    census = tls.Authority("census", authority.certificate, authority.key).member("pacific")
    async with node(census) as address:
        found = await probe(address, "pacific", identities["mountain"])
    assert found.kind == "other-network"
    assert "is for network census, not crime" in found.sentence


async def test_expired(authority, identities):
    old = authority.member("pacific", now=LONG_AGO)
    async with node(old) as address:
        found = await probe(address, "pacific", identities["mountain"], now=NOW)
    end = old.certificate.not_valid_after_utc
    assert found.kind == "expired"
    assert f"expired on {tls.moment(end)}, and our clock says {tls.moment(NOW)}" in found.sentence
    assert found.valid_until == end
    assert found.days_left is not None
    assert found.days_left < 0


async def test_not_yet_valid(identities):
    """A clock that lost its battery."""
    async with node(identities["pacific"]) as address:
        found = await probe(address, "pacific", identities["mountain"], now=LONG_AGO)
    assert found.kind == "not-yet-valid"
    assert f"and our clock says {tls.moment(LONG_AGO)}: set the clock here" in found.sentence


async def test_it_refuses_us_without_a_word(authority, identities):
    """Under TLS 1.3 gRPC just hangs up, after our side of the handshake went well."""
    async with node(identities["pacific"]) as address:
        found = await probe(address, "pacific", misled(authority))
        assert found.kind == "refuses-us"
        assert "refuses our certificate: the certificate was not issued by this network's" in found.sentence
        found = await probe(address, "pacific", authority.member("mountain", now=LONG_AGO))
        assert found.kind == "refuses-us"
        assert "refuses our certificate: the certificate expired on" in found.sentence


async def test_it_believes_another_authority_than_we_do(authority, identities):
    """Nothing wrong on our side: only its ca.pem differs, and its certificate is still good."""
    other = tls.Authority.create("crime")
    pacific = identities["pacific"]
    strayed = tls.Identity("pacific", "crime", pacific.certificate, (other.certificate,), pacific.key)
    async with node(strayed) as address:
        found = await probe(address, "pacific", identities["mountain"])
    assert found.kind == "refuses-us"
    assert "both nodes need the same ca.pem and clocks that agree" in found.sentence


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_it_refuses_us_by_an_alert(tmp_path, authority, identities, version):
    """Before the handshake ends (1.2) or after (1.3)."""
    context = server_context(tmp_path, identities["pacific"], believes=identities["pacific"].ca_pem)
    context.minimum_version = context.maximum_version = version
    with outspoken(context) as address:
        found = await probe(address, "pacific", authority.member("mountain", now=LONG_AGO))
        assert found.kind == "refuses-us"
        assert "it takes it for expired: compare the clocks" in found.sentence
    context = server_context(
        tmp_path / "other", identities["pacific"], tls.certificate_pem(tls.Authority.create("x").certificate)
    )
    context.minimum_version = context.maximum_version = version
    with outspoken(context) as address:
        found = await probe(address, "pacific", identities["mountain"])
        assert found.kind == "refuses-us"
        assert "it does not know the authority that issued it" in found.sentence


async def test_it_hangs_up_in_the_middle_of_the_handshake(tmp_path, authority, identities):
    """TLS 1.2 without an alert: it did answer in TLS, so it is no stranger."""
    context = server_context(tmp_path, identities["pacific"], believes=identities["pacific"].ca_pem)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    async with listener(silence, context) as address:
        found = await probe(address, "pacific", misled(authority))
    assert found.kind == "refuses-us"


async def test_a_server_that_shares_no_version_with_us(tmp_path, identities, monkeypatch):
    context = server_context(tmp_path, identities["pacific"], believes=None)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    real = probing._context

    def modern(identity):
        ours = real(identity)
        ours.minimum_version = ssl.TLSVersion.TLSv1_3
        return ours

    monkeypatch.setattr(probing, "_context", modern)
    with outspoken(context) as address:
        found = await probe(address, "pacific", identities["mountain"])
    assert found.kind == "broken-tls"
    assert "PROTOCOL_VERSION" in found.sentence


async def test_the_right_certificate_on_something_that_is_no_node(tmp_path, identities):
    context = server_context(tmp_path, identities["pacific"], believes=None)
    async with listener(web_page, context) as address:
        found = await probe(address, "pacific", identities["mountain"])
    assert found.kind == "stranger"


async def test_a_foreign_name_cannot_write_on_the_terminal(tmp_path, authority, identities, monkeypatch):
    monkeypatch.setattr(tls, "_node_id", lambda node: node)
    rude = tls.Authority.create("crime").member("\x1b[2Jpacific")
    monkeypatch.undo()
    async with node(rude) as address:
        found = await probe(address, "pacific", identities["mountain"])
    assert found.kind == "other-authority"
    assert found.sentence.isprintable()


async def test_the_key_never_touches_a_disk(identities, monkeypatch):
    """The ssl module takes a key by path only; ours is one without a folder."""
    paths = []
    real = ssl.SSLContext.load_cert_chain

    def watch(self, certfile, *args):
        paths.append(certfile)
        return real(self, certfile, *args)

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", watch)
    async with node(identities["pacific"]) as address:
        await probe(address, "pacific", identities["mountain"])
    assert len(paths) == 1
    assert paths[0].startswith("/proc/self/fd/")
