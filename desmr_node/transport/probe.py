"""Why an edge does not come up, in words a person can act on.

gRPC says UNAVAILABLE to all of it. This walks the way by hand (name, port, TLS, the peer's certificate, its
opinion of ours, HTTP/2), stops at the first thing that is wrong, and opens no stream.
"""

import asyncio
import os
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from cryptography import x509

from desmr_node.transport import tls

Kind = Literal[
    "fine",
    "bad-address",
    "unresolved",
    "refused",
    "unreachable",
    "timed-out",
    "plain",
    "wants-tls",
    "stranger",
    "broken-tls",
    "other-node",
    "other-network",
    "other-authority",
    "bad-certificate",
    "expired",
    "not-yet-valid",
    "refuses-us",
]

Target = tuple[int, tuple[Any, ...]]
#: How HTTP/2 starts: the preface and an empty SETTINGS frame; the other side answers with its own SETTINGS.
GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
FRAME_HEAD = 9
#: The first byte a TLS server sends, unless it refuses at once.
HANDSHAKE_RECORD = 0x16
SOON_DAYS = 30

_KINDS: dict[tls.Fault, Kind] = {
    "malformed": "bad-certificate",
    "authority": "other-authority",
    "node": "other-node",
    "network": "other-network",
    "expired": "expired",
    "not-yet-valid": "not-yet-valid",
}
#: Words of OpenSSL's names for the alerts with which a peer turns our certificate down.
_ALERTS = {
    "UNKNOWN_CA": "it does not know the authority that issued it: both nodes need the same ca.pem",
    "CERTIFICATE_EXPIRED": "it takes it for expired: compare the clocks, or have it issued again",
    "CERTIFICATE_REQUIRED": "it saw none: fill in [tls] here",
    "CERTIFICATE_REVOKED": "it was revoked: have another one issued",
}


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What became of an attempt to reach a neighbour."""

    ok: bool
    kind: Kind
    sentence: str
    valid_from: datetime | None = None
    valid_until: datetime | None = None
    days_left: int | None = None


class _Found(Exception):  # noqa: N818 - ends the walk with its finding, which may be a good one
    def __init__(self, kind: Kind, sentence: str) -> None:
        super().__init__(sentence)
        self.kind = kind


async def probe(
    address: str,
    expected_node: str,
    identity: tls.Identity | None,
    timeout: float = 3.0,
    *,
    now: datetime | None = None,
) -> Diagnosis:
    """Try to reach ``expected_node`` at host:port as ``identity``, or without TLS if that is None."""
    walk = _Walk(address, expected_node, identity, now or datetime.now(UTC))
    try:
        async with asyncio.timeout(timeout):
            await walk.go()
    except _Found as found:
        kind, sentence = found.kind, str(found)
    except TimeoutError:
        kind, sentence = "timed-out", f"{walk.who} {walk.stage} within {timeout:g} s: {walk.remedy}"
    start = end = days = None
    if walk.certificate is not None:
        start, end = walk.certificate.not_valid_before_utc, walk.certificate.not_valid_after_utc
        days = (end - walk.now).days
    return Diagnosis(kind == "fine", kind, sentence, start, end, days)


class _Walk:
    """One attempt, and how far it came."""

    def __init__(self, address: str, node: str, identity: tls.Identity | None, now: datetime) -> None:
        self.who = f"{node} at {address}"
        self.address = address
        self.node = node
        self.identity = identity
        self.now = now
        self.certificate: x509.Certificate | None = None
        self.stage = "did not answer"
        self.remedy = ""

    async def go(self) -> None:
        """Raise `_Found` at the first thing worth telling."""
        targets = await self._resolve()
        if self.identity is None:
            await self._plain_edge(targets)
        else:
            await self._tls_edge(targets, self.identity)

    async def _resolve(self) -> list[Target]:
        host, _, port = self.address.rpartition(":")
        host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
        if not host or not port.isascii() or not port.isdecimal() or not 0 < int(port) < 65536:
            raise _Found("bad-address", f"{self.who}: write the address in [[neighbours]] as host:port")
        self.stage = f"has a name, {host}, that could not be looked up"
        self.remedy = "see to this machine's name service, or give a number"
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, int(port), type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:  # UnicodeError: a label that IDNA cannot take
            reason = getattr(error, "strerror", None) or "no host name"
            raise _Found(
                "unresolved",
                f"{self.who}: the name {host} does not resolve ({reason}): correct the address in "
                "[[neighbours]], or see to this machine's name service",
            ) from None
        # a dual-stack name rarely has more than one of each kind; the timeout is shared by all
        return [(family, where) for family, _, _, _, where in found[:4]]

    async def _plain_edge(self, targets: list[Target]) -> None:
        async with self._connect(targets) as connection:
            if await _answers_plainly(connection):
                raise _Found("fine", f"{self.who} answers without TLS, as this node is set up to do")
        async with self._connect(targets) as connection:
            channel = _Channel(connection, self.node, None)
            with suppress(ssl.SSLError, OSError):
                await channel.handshake()
                self._look(channel)
                raise _Found(
                    "wants-tls", f"{self.who} wants TLS and this node has no certificate: fill in [tls] here"
                )
        raise self._stranger()

    async def _tls_edge(self, targets: list[Target], identity: tls.Identity) -> None:
        async with self._connect(targets) as connection:
            channel = _Channel(connection, self.node, identity)
            try:
                await channel.handshake()
            except (ssl.SSLError, OSError) as error:
                if channel.answered_in_tls or "ALERT" in _reason(error):
                    raise self._turned_down(error) from None
            else:
                certificate = self._look(channel)
                self._judge(certificate, identity)
                await self._greet(channel, certificate)
        # No TLS here. Plain HTTP/2 or something else altogether? Ask again, in plain.
        async with self._connect(targets) as connection:
            if await _answers_plainly(connection):
                raise _Found(
                    "plain", f"{self.who} speaks no TLS: fill in [tls] there, or correct the address here"
                )
        raise self._stranger()

    @asynccontextmanager
    async def _connect(self, targets: list[Target]) -> AsyncIterator[socket.socket]:
        """The first target that takes a connection; else why none does."""
        self.stage = "did not answer"
        self.remedy = "see whether it is up and whether a firewall drops the packets"
        failures: list[OSError] = []
        for family, where in targets:
            connection = socket.socket(family, socket.SOCK_STREAM)
            connection.setblocking(False)
            try:
                await asyncio.get_running_loop().sock_connect(connection, where)
            except OSError as error:
                connection.close()
                failures.append(error)
                continue
            except BaseException:
                connection.close()
                raise
            self.stage = "took the connection and then said nothing"
            self.remedy = "see whether it hangs, or whether something else listens there"
            try:
                yield connection
            finally:
                connection.close()
            return
        if any(isinstance(error, ConnectionRefusedError) for error in failures):
            raise _Found(
                "refused",
                f"{self.who} refuses the connection: start the node there, or correct the port in "
                "[[neighbours]]",
            )
        reason = os.strerror(failures[0].errno) if failures and failures[0].errno else "no route"
        raise _Found(
            "unreachable", f"{self.who} cannot be reached ({reason}): see to the network between the two"
        )

    def _look(self, channel: "_Channel") -> x509.Certificate:
        try:
            self.certificate = tls.parse_certificate(channel.peer_certificate())
        except tls.CertificateError as error:
            raise _Found(
                "bad-certificate", f"{self.who}: {error}: have its certificate issued again"
            ) from None
        return self.certificate

    def _judge(self, certificate: x509.Certificate, identity: tls.Identity) -> None:
        try:
            tls.verify_certificate(certificate, identity.authorities, self.node, identity.network, self.now)
        except tls.CertificateError as error:
            claimed = tls.quoted(tls.subject(certificate)[0])
            start = tls.moment(certificate.not_valid_before_utc)
            end = tls.moment(certificate.not_valid_after_utc)
            clock = f"our clock says {tls.moment(self.now)}"
            said: dict[tls.Fault, str] = {
                "malformed": f": {error}: have its certificate issued again",
                "authority": f" shows a certificate of another authority (in the name of {claimed}): "
                "both nodes need the same ca.pem, or the address in [[neighbours]] leads elsewhere",
                "node": f" shows the certificate of {claimed}: correct the address in [[neighbours]], "
                f"or install the certificate of {self.node} there",
                "network": f": {error}: the address in [[neighbours]] leads to another network",
                "expired": f" shows a certificate that expired on {end}, and {clock}: have it issued "
                "again there, unless the clock here is wrong",
                "not-yet-valid": f" shows a certificate that is valid from {start} to {end}, and {clock}: "
                "set the clock here, or wait",
            }
            raise _Found(_KINDS[error.kind], self.who + said[error.kind]) from None

    async def _greet(self, channel: "_Channel", certificate: x509.Certificate) -> None:
        # Under TLS 1.3 our handshake is over before the peer has judged our certificate: its verdict is
        # the first thing that comes back.
        try:
            first = await channel.ask(GREETING)
        except (ssl.SSLError, OSError) as error:
            raise self._turned_down(error) from None
        if not first:
            raise self._turned_down(None)
        if not _is_settings(first):
            raise self._stranger()
        days = (certificate.not_valid_after_utc - self.now).days
        until = f"its certificate is valid until {tls.moment(certificate.not_valid_after_utc)}"
        advice = ": have it issued again soon" if days < SOON_DAYS else ""
        raise _Found("fine", f"{self.who} answers, and {until} ({days} days){advice}")

    def _turned_down(self, error: Exception | None) -> _Found:
        reason = _reason(error)
        for alert, words in _ALERTS.items():
            if alert in reason:
                return _Found("refuses-us", f"{self.who} refuses our certificate: {words}")
        if "ALERT" in reason and "CERTIFICATE" not in reason:
            return _Found(
                "broken-tls",
                f"{self.who} breaks off the TLS handshake ({reason}): its log says why",
            )
        # gRPC hangs up without an alert: what is wrong with ours is then for us to find out.
        words = "both nodes need the same ca.pem and clocks that agree; its log says more"
        if self.identity is not None:
            try:
                tls.verify_certificate(
                    self.identity.certificate,
                    self.identity.authorities,
                    self.identity.node,
                    self.identity.network,
                    self.now,
                )
            except tls.CertificateError as fault:
                words = f"{fault}; have ours issued again"
        return _Found("refuses-us", f"{self.who} refuses our certificate: {words}")

    def _stranger(self) -> _Found:
        return _Found(
            "stranger",
            f"{self.who} is no desmr-node: something else listens there, so correct the address in "
            "[[neighbours]]",
        )


class _Channel:
    """TLS over a plain stream, by hand: nothing is verified here, so that all of it can be looked at."""

    def __init__(
        self,
        connection: socket.socket,
        node: str,
        identity: tls.Identity | None,
    ) -> None:
        self.answered_in_tls = False
        self._connection = connection
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = _context(identity)
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=node)

    async def handshake(self) -> None:
        while True:
            try:
                self._tls.do_handshake()
                return
            except ssl.SSLWantReadError:
                await self._exchange()

    def peer_certificate(self) -> bytes:
        return self._tls.getpeercert(binary_form=True) or b""

    async def ask(self, question: bytes) -> bytes:
        """Send ``question``; the head of the first frame of the answer, or less if the peer hangs up."""
        self._tls.write(question)
        answer = b""
        while len(answer) < FRAME_HEAD:
            try:
                part = self._tls.read(FRAME_HEAD - len(answer))
            except ssl.SSLWantReadError:
                await self._exchange()
                continue
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                break
            if not part:
                break
            answer += part
        return answer

    async def _exchange(self) -> None:
        loop = asyncio.get_running_loop()
        with suppress(OSError):  # a peer that hung up may have said why: that is still there to be read
            await loop.sock_sendall(self._connection, self._outgoing.read())
        data = await loop.sock_recv(self._connection, 16_384)
        if data:
            self.answered_in_tls = self.answered_in_tls or data[0] == HANDSHAKE_RECORD
            self._incoming.write(data)
        else:
            self._incoming.write_eof()


def _context(identity: tls.Identity | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])  # gRPC hangs up on clients that do not ask for it
    if identity is not None:
        # The ssl module reads keys from files only: this one exists in memory alone.
        with os.fdopen(os.memfd_create("identity", os.MFD_CLOEXEC), "wb") as file:
            file.write(tls.private_pem(identity.key) + identity.certificate_pem)
            file.flush()
            context.load_cert_chain(f"/proc/self/fd/{file.fileno()}")
    return context


async def _answers_plainly(connection: socket.socket) -> bool:
    """Whether the other side speaks HTTP/2 without TLS."""
    loop = asyncio.get_running_loop()
    answer = b""
    try:
        await loop.sock_sendall(connection, GREETING)
        while len(answer) < FRAME_HEAD:
            part = await loop.sock_recv(connection, FRAME_HEAD - len(answer))
            if not part:
                break
            answer += part
    except OSError:
        return False
    return _is_settings(answer)


def _is_settings(frame: bytes) -> bool:
    """Whether these are the first bytes of an HTTP/2 SETTINGS frame: its length, then type 4."""
    return len(frame) == FRAME_HEAD and frame[3] == 4 and int.from_bytes(frame[:3], "big") % 6 == 0


def _reason(error: Exception | None) -> str:
    return (error.reason or "") if isinstance(error, ssl.SSLError) else ""
