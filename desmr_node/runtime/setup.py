"""The files of a network: a folder per node (node.toml, key, certificates) and one for the authority."""

import os
from collections.abc import Callable, Collection, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from desmr_node.config import NetworkConfig, dump_toml, load_node
from desmr_node.errors import ConfigError
from desmr_node.transport import tls

#: How long a certificate lasts unless told otherwise, in days.
DAYS = 825
AUTHORITY = "authority"
_TLS = {"ca": "ca.pem", "certificate": "node.pem", "key": "node.key"}


def write_network(
    network: NetworkConfig,
    folder: str | Path,
    *,
    days: float = DAYS,
    insecure: bool = False,
    requests: Collection[str] = (),
) -> dict[str, Path]:
    """Write everything the nodes of a network need; the path of each one's node.toml.

    Nodes in ``requests`` make their own keys: they get no key and no certificate here. Either all files are
    written or none, and no file that exists is touched.
    """
    folder = Path(os.path.abspath(folder))
    _require_sense(network, insecure, requests)
    documents = {node: _document(network, node, folder, insecure) for node in network.ids}
    files = [folder / node / name for node in network.ids for name in _names(insecure, node in requests)]
    if not insecure:
        files += [folder / AUTHORITY / name for name in ("ca.key", "ca.pem")]
    _require_absent(files)
    with ExitStack() as undo:
        _make_folder(folder, undo)
        for path in files:
            _make_folder(path.parent, undo)
        authority = None if insecure else tls.Authority.create(network.network)
        if authority is not None:
            authority.save(folder / AUTHORITY)
            for name in ("ca.key", "ca.pem"):
                undo.callback((folder / AUTHORITY / name).unlink, missing_ok=True)
        written = {
            node: _write_member(folder / node, document, authority, None if node in requests else days, undo)
            for node, document in documents.items()
        }
        undo.pop_all()
    return written


def _write_member(
    here: Path, document: dict[str, Any], authority: tls.Authority | None, days: float | None, undo: ExitStack
) -> Path:
    """One member's files, without key and certificate if ``days`` is None; the path of its node.toml."""
    files: list[tuple[str, bytes, Callable[[Path, bytes], None]]] = []
    if authority is not None:
        files.append(("ca.pem", tls.certificate_pem(authority.certificate), tls.write_public))
        if days is not None:
            identity = authority.member(document["node"], days)
            files.append(("node.key", tls.private_pem(identity.key), tls.write_private))
            files.append(("node.pem", identity.certificate_pem, tls.write_public))
    files.append(("node.toml", dump_toml(document).encode(), tls.write_public))
    for name, content, write in files:
        write(here / name, content)
        undo.callback((here / name).unlink, missing_ok=True)
    load_node(here / "node.toml", environ={})  # refuses, say, a socket path that is too long here
    return here / "node.toml"


def _require_absent(files: Iterable[Path]) -> None:
    for path in files:
        if os.path.lexists(path):
            raise ConfigError(
                f"{path} exists already, and nothing was written: name another folder, or move the old files "
                "away (a key that is gone cannot be made again)"
            )


def add_member(
    network: NetworkConfig, folder: str | Path, node: str, *, days: float = DAYS, request: bool = False
) -> Path:
    """Write the files of one more member of a network whose others exist; the path of its node.toml.

    The authority in ``folder`` vouches for it, unless with ``request`` the owner makes the key. Either all
    its files are written or none, and nothing of anybody else's is touched.
    """
    folder = Path(os.path.abspath(folder))
    _require_sense(network, False, [node])
    if not network.neighbours_of(node):
        raise ConfigError(f"{node} has no neighbour: add an edge between it and another node to edges")
    if not (folder / AUTHORITY).is_dir():
        raise ConfigError(
            f"{folder} has no folder {AUTHORITY}: name the folder that `desmr network init` wrote, and put "
            "its authority back if it is kept elsewhere"
        )
    authority = tls.Authority.load(folder / AUTHORITY)
    if authority.network != network.network:
        raise ConfigError(
            f"{folder / AUTHORITY} is the authority of network {authority.network}, and the file describes "
            f"{network.network}: name the folder of that network"
        )
    document = _document(network, node, folder, False)
    _require_absent([folder / node / name for name in _names(False, request)])
    with ExitStack() as undo:
        _make_folder(folder / node, undo)
        path = _write_member(folder / node, document, authority, None if request else days, undo)
        undo.pop_all()
    return path


def neighbour_block(network: NetworkConfig, node: str, neighbour: str) -> str:
    """What the node.toml of ``node`` needs to say about ``neighbour``, ready to be put at its end."""
    entries = network.node_document(node)["neighbours"]
    return dump_toml({"neighbours": [entry for entry in entries if entry["id"] == neighbour]})


def write_request(node: str, network: str, folder: str | Path) -> tuple[Path, Path]:
    """A new key, for its owner only, and the request that goes to the authority; neither may exist."""
    folder = Path(folder)
    key_path, request_path = folder / "node.key", folder / "node.csr"
    key, request = tls.request(node, network)
    for path in (key_path, request_path):
        if os.path.lexists(path):
            raise ConfigError(f"{path} exists already, and nothing was written: name another folder")
    with ExitStack() as undo:
        _make_folder(folder, undo)
        tls.write_private(key_path, tls.private_pem(key))
        undo.callback(key_path.unlink, missing_ok=True)
        tls.write_public(request_path, request)
        undo.pop_all()
    return key_path, request_path


def sign_request(
    authority: str | Path,
    request: str | Path,
    *,
    node: str | None = None,
    out: str | Path | None = None,
    days: float = DAYS,
    replace: bool = False,
) -> Path:
    """Answer a request with a certificate, beside it unless ``out`` says where; the path of it."""
    request = Path(request)
    issuer = tls.Authority.load(authority)
    try:
        with open(request, "rb") as file:
            pem = file.read(tls.LARGEST_FILE)
    except OSError as error:
        raise ConfigError(f"{request} cannot be read ({error.strerror}): name the file node.csr") from None
    certificate = issuer.sign_request(pem, node, days)
    path = request.with_name("node.pem") if out is None else Path(out)
    if not path.parent.is_dir():
        raise ConfigError(f"{path.parent} is no folder: make it first, or name another with --out")
    if not replace and os.path.lexists(path):
        raise ConfigError(f"{path} exists already: name another file with --out, or add --replace")
    tls.write_public(path, certificate, replace=replace)
    return path


def _names(insecure: bool, requested: bool) -> tuple[str, ...]:
    if insecure:
        return ("node.toml",)
    return ("node.toml", "ca.pem") if requested else ("node.toml", *_TLS.values())


def _require_sense(network: NetworkConfig, insecure: bool, requests: Collection[str]) -> None:
    for node in requests:
        network.node(node)  # raises, naming those there are
    if insecure and requests:
        raise ConfigError("an insecure network has no keys to request: leave out --request, or --insecure")
    if AUTHORITY in network.ids:
        raise ConfigError(f"a node is called {AUTHORITY!r}, as is the authority's folder: rename the node")


def _document(network: NetworkConfig, node: str, folder: Path, insecure: bool) -> dict[str, Any]:
    entry = network.node(node)

    def place(path: Path | None) -> str | None:
        if path is None:
            return None
        path = Path(os.path.abspath(path))
        return os.path.relpath(path, folder / node) if path.is_relative_to(folder) else str(path)

    return network.node_document(
        node,
        data=place(entry.data),
        holdout=place(entry.holdout),
        tls=None if insecure else _TLS,
        insecure=insecure,
    )


def _make_folder(folder: Path, undo: ExitStack) -> None:
    """A folder for its owner only, unless it exists; taken away again if the rest fails."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    for each in reversed(missing):
        try:
            each.mkdir(mode=0o700)
        except OSError as error:
            raise ConfigError(f"{each} cannot be made ({error.strerror}): choose another folder") from None
        undo.callback(each.rmdir)
    if not folder.is_dir():
        raise ConfigError(f"{folder} is a file: name a folder")
