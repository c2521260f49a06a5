"""A network of three nodes with sixty rows each: a fit takes a tenth of a second."""

import asyncio
import contextlib

import numpy as np
import pytest

from desmr_node import cli
from desmr_node.config import load_network, load_node
from desmr_node.runtime.census import free_ports
from desmr_node.runtime.daemon import Daemon
from desmr_node.runtime.setup import write_network

NODES = ("a", "b", "c")
FEATURES = ("u", "v", "w", "z")


@pytest.fixture
def network(tmp_path):
    """Writes NETWORK.toml and the rows; the path of it."""

    def write(name="net.toml", *, top="", tables="", features=FEATURES, nodes=NODES):
        rng = np.random.default_rng(0)
        text = [
            f'network = "three"\nedges = [["a", "b"], ["b", "c"]]\n{top}\n[data]\nresponse = "y"\n{tables}\n'
        ]
        for node in nodes:
            X = rng.standard_normal((60, 4))
            y = X @ [2.0, 0.0, 0.0, -1.0] + 1 + rng.standard_cauchy(60)
            header = ",".join((*features, "y"))
            np.savetxt(
                tmp_path / f"{node}.csv", np.column_stack([X, y]), delimiter=",", header=header, comments=""
            )
            text.append(
                f'[[nodes]]\nid = "{node}"\naddress = "127.0.0.1:{free_ports(1)[0]}"\ndata = "{node}.csv"\n'
                f'holdout = "{node}.csv"\n'
            )
        path = tmp_path / name
        path.write_text("".join(text))
        return path

    return write


@pytest.fixture
def nodes(network, tmp_path):
    """The three nodes' files: id to path of node.toml."""
    return write_network(load_network(network(), environ={}), tmp_path / "n")


@pytest.fixture
def desmr(capsys):
    """Runs `desmr` in this process: exit code, standard output, standard error; never a traceback."""

    def run(*arguments):
        capsys.readouterr()
        code = cli.desmr([str(a) for a in arguments])
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return code, out, err

    return run


@pytest.fixture
def remote(desmr):
    """The same, beside daemons on this event loop."""

    async def run(*arguments):
        return await asyncio.to_thread(desmr, *arguments)

    return run


@pytest.fixture
def serving():
    """Daemons on this event loop, from their node.toml files, until the block ends."""

    @contextlib.asynccontextmanager
    async def serve(*paths):
        daemons, tasks = [], []
        try:
            for path in paths:
                daemon = Daemon(load_node(path, environ={}))
                daemons.append(daemon)
                await daemon.start()
                tasks.append(asyncio.create_task(daemon.run()))
            yield daemons
        finally:
            for daemon in daemons:
                daemon.stop("the test is over")
            await asyncio.gather(*tasks)
            await asyncio.gather(*(daemon.close() for daemon in daemons))

    return serve


@pytest.fixture
def edit():
    """Replaces text in a file, which must be there."""

    def change(path, old, new):
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))

    return change
