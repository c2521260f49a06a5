"""The two commands: `desmr`, the statistician's and operator's tool, and `desmr-node`, the daemon.

Each command of `desmr` is a module here with `add(commands)`, which declares its arguments, and a function
that runs it. Nothing heavy is imported before a command is chosen.
"""

import argparse
import errno
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

# One BLAS thread per process, before anything imports numpy: many small solves are ten times slower with two.
for _variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")
# gRPC's own lines on standard error say what our sentences say, in other words.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

#: Exit codes: 0 fine, 1 it cannot be done (a sentence says why), 2 wrong usage, 3 a fit failed, 4 it was
#: finished without some of its members, 70 a daemon crashed (a traceback says where): that is worth another
#: start, which 1 is not.
CANNOT, USAGE, FAILED, INCOMPLETE, CRASHED, INTERRUPTED = 1, 2, 3, 4, 70, 130


class _Version(argparse.Action):
    """Looks the version up when it is asked for: that takes longer than all else before a command runs."""

    def __init__(self, option_strings: Sequence[str], dest: str, **_: Any) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, help="show the version and exit")

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from importlib.metadata import version

        print(f"{parser.prog} {version('desmr-node')}")
        parser.exit()


def desmr(argv: Sequence[str] | None = None) -> int:
    """Entry point of `desmr`."""
    from desmr_node.cli import census, check, control, demo, health, network, simulation, study

    parser = argparse.ArgumentParser(
        prog="desmr",
        description="Fit one sparse, outlier-proof linear model over rows that may not be pooled.",
        epilog="A first look: desmr demo. A command's own help: desmr COMMAND --help.",
    )
    parser.add_argument("--version", action=_Version)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for module in (demo, network, check, control, health, simulation, study, census):
        module.add(commands)
    arguments = parser.parse_args(argv)
    return run(lambda: int(arguments.run(arguments)), "desmr")


def desmr_node(argv: Sequence[str] | None = None) -> int:
    """Entry point of `desmr-node`."""
    parser = argparse.ArgumentParser(
        prog="desmr-node",
        description="The node daemon: holds one member's rows.",
        epilog="Write the configuration with `desmr network init` and look it over with `desmr check`; "
        "talk to the running node with `desmr status`, `start`, `watch` and `result`.",
    )
    parser.add_argument("--version", action=_Version)
    parser.add_argument("--config", required=True, metavar="node.toml", help="the node's configuration file")
    parser.add_argument(
        "--once",
        action="store_true",
        help="take part in one fit, then exit: 0 if it is done, 3 if it failed, 4 if it was finished without "
        "some of its members",
    )
    arguments = parser.parse_args(argv)
    try:
        return _leave(run(lambda: _serve(arguments.config, arguments.once), "desmr-node"))
    except Exception:
        import traceback

        traceback.print_exc()
        return _leave(CRASHED)


def _serve(path: str, once: bool) -> int:
    # gRPC's older poller reads a socket in the thread that waits for it, without handing it to another: a
    # seventh of a round's processor time (docs/decisions/0007-streams.md). Set before grpc is imported.
    os.environ.setdefault("GRPC_EXPERIMENTS", "-event_engine_client,-event_engine_listener")
    import signal

    import uvloop

    from desmr_node.config import load_node
    from desmr_node.runtime import logs
    from desmr_node.runtime.daemon import serve

    config = load_node(path)
    logs.configure(config.node, config.log.level, config.log.format)
    # The first process of a container ignores what it has no handler for, and reading rows may take a while.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    return uvloop.run(serve(config, once=once))


def _leave(code: int) -> int:
    """End the process now, if a long computation that nobody waits for any more would keep it."""
    import logging
    import threading

    from desmr_node.runtime.node import WORKER_THREAD

    if any(thread.name.startswith(WORKER_THREAD) for thread in threading.enumerate()):
        logging.shutdown()
        sys.stderr.flush()
        os._exit(code)
    return code


def run(command: Callable[[], int], program: str) -> int:
    """Run a command; a user's mistake is a sentence, not a traceback."""
    from desmr_node.errors import DesmrError

    try:
        code = command()
        sys.stdout.flush()
        return code
    except DesmrError as error:
        print(f"{program}: {error}", file=sys.stderr)
        return CANNOT
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output has gone: that is its business
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EIO, errno.EDQUOT):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        print(f"{program}: the output cannot be written ({error.strerror})", file=sys.stderr)
        return CANNOT
