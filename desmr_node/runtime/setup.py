"""The files of a network: a folder per node (node.toml, key, certificates) and one for the authority."""

import os
from collections.abc import Collection
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
    for path in files:
        if os.path.lexists(path):
            raise ConfigError(
                f"{path} exists already, and nothing was written: name another folder, or move the old files "
                "away (a key that is gone cannot be made again)"
            )
    with ExitStack() as undo:
        _make_folder(folder, undo)
        for path in files:
            _make_folder(path.parent, undo)
        for path in files:  # run last to first if anything below fails: files, then folders
            undo.callback(path.unlink, missing_ok=True)
        authority = None if insecure else tls.Authority.create(network.network)
        if authority is not None:
            authority.save(folder / AUTHORITY)
        written = {}
        for node, document in documents.items():
            here = folder / node
            if authority is not None:
                tls.write_public(here / "ca.pem", tls.certificate_pem(authority.certificate))
                if node not in requests:
                    identity = authority.member(node, days)
                    tls.write_private(here / "node.key", tls.private_pem(identity.key))
                    tls.write_public(here / "node.pem", identity.certificate_pem)
            written[node] = here / "node.toml"
            tls.write_public(written[node], dump_toml(document).encode())
            load_node(written[node], environ={})  # refuses, say, a socket path that is too long here
        undo.pop_all()
    return written


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
