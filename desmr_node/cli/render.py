"""What the commands print: tables for people, by rich, without colours where NO_COLOR or a pipe says so.

Names and reasons may come from other machines: whatever could move a cursor is taken out of them first.
"""

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

    from desmr_node.transport.wire import admin_pb2 as pb

#: Columns where the output is no terminal: a file has no margin at which to fold paths.
_WIDTH = 1000

Side = Literal["left", "right"]
Mark = Literal["ok", "warning", "problem", "skipped"]
_STYLES: dict[Mark, str] = {"ok": "green", "warning": "yellow", "problem": "bold red", "skipped": "dim"}


def console(*, stderr: bool = False) -> "Console":
    """Where to print: as wide as the terminal, plain if it is none."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    return Console(
        file=stream, width=None if stream.isatty() else _WIDTH, highlight=False, markup=False, emoji=False
    )


def show(*parts: "RenderableType") -> None:
    """Print tables and lines to standard output, without the blanks that fill them up on the right."""
    out = console()
    with out.capture() as captured:
        for part in parts:
            out.print(part)
    for line in captured.get().splitlines():
        print(line.rstrip())


def plain(text: str) -> str:
    """Foreign text without control characters."""
    return "".join(c if c.isprintable() else " " for c in text)


def number(value: float | None, digits: int = 4) -> str:
    """A number for people; a dash if there is none."""
    return "–" if value is None or not math.isfinite(value) else f"{value:.{digits}g}"


def size(count: float) -> str:
    """Bytes for people."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


def table(columns: Mapping[str, Side], rows: Iterable[Sequence[str]]) -> "Table":
    """A table without frames; nothing in it is taken for markup."""
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    for title, side in columns.items():
        made.add_column(title, justify=side, overflow="fold")
    for row in rows:
        made.add_row(*(Text(plain(cell)) for cell in row))
    return made


def mark(kind: Mark) -> "Text":
    """The first word of a line of a checklist."""
    from rich.text import Text

    return Text(kind, style=_STYLES[kind])


def result_lines(result: Mapping[str, Any]) -> list[str]:
    """What a fit is and how it ended, for above and below the coefficients."""
    settings = result["settings"]
    model = (
        "median regression"
        if settings["quantile"] == 0.5
        else f"{settings['quantile']:g}-quantile regression"
    )
    if settings["loss"] == "squared":
        model = "least squares"
    members = result["members"]
    head = (
        f"{result['response']}: {settings['penalty'].upper()}-penalised {model} over {result['rows']} rows "
        f"of {len(members)} {'node' if len(members) == 1 else 'nodes'}"
    )
    lines = [head, f"fit {result['fit']} of network {result['network']}, as {result['node']} holds it"]
    for lost in result.get("lost", ()):  # results of older releases do not say
        lies = lost["node"] in result.get("left_out", ())
        how = "was left out, since it seems to lie," if lies else "was lost"
        lines.append(
            f"WITHOUT {lost['node']}, which {how} in outer round {lost['outer']} of fit {lost['fit']}"
        )
    return [plain(line) for line in lines]


def ending_lines(result: Mapping[str, Any]) -> list[str]:
    """Errors on the hold-out rows, the objective, and whether it converged."""
    errors = result["holdout"]
    lines = [
        f"lambda {number(result['lambda'])}; mean loss plus penalty {number(result['objective'], 6)} "
        f"(pilots: {number(result['pilot_objective'], 6)})"
    ]
    if errors is None:
        lines.append("no hold-out rows: set data.holdout at the nodes to have the predictions judged")
    else:
        lines.append(
            f"on {errors['rows']} hold-out rows: RMSE {number(errors['rmse'])}, MAE {number(errors['mae'])}"
        )
    lines.append(result["message"])
    residual = result.get("consensus_residual")
    if residual is not None:
        lines.append(f"nodes agree to {number(residual, 2)} standard errors")
    return [plain(line) for line in lines]


def coefficients(
    result: Mapping[str, Any], *, everything: bool = False, ranges: Mapping[str, float] | None = None
) -> "Table":
    """The intercept, then the coefficients by size: the selected ones, or all. ``ranges``: over nodes."""
    support = set(result["support"])
    values: dict[str, float] = result["coefficients"]
    names = sorted((n for n in values if everything or n in support), key=lambda n: (-abs(values[n]), n))
    columns: dict[str, Side] = {"feature": "left", "coefficient": "right"}
    if everything:
        columns["selected"] = "left"
    if ranges is not None:
        columns["nodes differ by"] = "right"
    rows = []
    for name in ("(intercept)", *names):
        value = result["intercept"] if name == "(intercept)" and name not in values else values[name]
        row = [name, f"{value:+.6g}"]
        if everything:
            row.append("" if name == "(intercept)" else "yes" if name in support else "no")
        if ranges is not None:
            row.append(number(ranges[name], 2))
        rows.append(row)
    return table(columns, rows)


def selected_zeros(result: Mapping[str, Any]) -> list[str]:
    """A line about coefficients of zero among the selected, if there are any."""
    zeros = [name for name in result["support"] if result["coefficients"][name] == 0]
    if not zeros:
        return []
    return [plain(f"{', '.join(zeros)}: selected by the votes of all nodes, and zero at {result['node']}")]


def show_result(
    result: Mapping[str, Any], *, everything: bool = False, ranges: Mapping[str, float] | None = None
) -> None:
    """The whole report of one node's fit."""
    kept, total = len(result["support"]), len(result["coefficients"])
    hidden = "" if everything or kept == total else " (--all shows the others)"
    show(
        *result_lines(result),
        "",
        coefficients(result, everything=everything, ranges=ranges),
        f"{kept} of {total} features selected{hidden}",
        *selected_zeros(result),
        "",
        *ending_lines(result),
    )


# --- a running node -------------------------------------------------------------------------------------

#: Phases that say it all; in the others the stage does.
_PHASES = {
    "idle": "idle: no fit has been started",
    "meeting": "waiting until all neighbours are ready",
    "gathering": "learning who takes part",
    "done": "done",
    "failed": "failed",
}
_STAGES = {
    "rounds": "exchanging coefficients",
    "scoring": "choosing lambda",
    "scaling": "agreeing on scales",
    "pilot": "fitting its own rows first",
    "closing": "closing the outer round",
    "evaluation": "judging the predictions",
}
_SUSPICIONS = {
    "doubted": "may be lying",
    "accused": "seems to lie",
    "left out": "left out of the fit, since it seems to lie",
}
#: Outer rounds shown of a long fit.
_LAST_ROUNDS = 8


def doing(status: "pb.Status") -> str:
    """What the node is about, in a few words."""
    told = _PHASES.get(status.phase) or _STAGES.get(status.stage) or status.stage or status.phase
    if status.phase in ("done", "failed") and status.message:
        told += f": {status.message}"
    if status.paused:
        told = f"paused: {status.paused}"
    if status.phase == "idle" and status.fit:
        told = f"idle: the last fit was {status.fit}"
    return plain(told)


def without(status: "pb.Status") -> str:
    """Who was lost, to be put behind the fit's number."""
    if not status.lost:
        return ""
    begun = f", begun as fit {status.continues}" if status.continues else ""
    return plain(f"{begun}, without {', '.join(status.lost)}")


def round_line(line: "pb.OuterRound") -> str:
    """An outer round as one line of text."""
    return (
        f"outer round {line.outer}: lambda {number(getattr(line, 'lambda'), 3)}, "
        f"objective {number(line.objective, 6)}, {line.nonzeros} variables, moved {number(line.moved, 2)}, "
        f"spread {number(line.spread, 2)}{'' if line.accepted else ', rejected'}"
    )


def peer_line(peer: "pb.Peer") -> str:
    """A neighbour's state as one line of text."""
    suspicion = f", {_SUSPICIONS[peer.suspicion]}" if peer.suspicion in _SUSPICIONS else ""
    return plain(f"{peer.node}: {peer.state}{f' ({peer.reason})' if peer.reason else ''}{suspicion}")


def peer_release(peer: "pb.Peer") -> str:
    """What a neighbour runs and the wire version spoken with it, as far as is known."""
    if not peer.wire_version:
        return plain(peer.release)
    return plain(f"{peer.release or 'unnamed'} (wire {peer.wire_version})")


def status_view(status: "pb.Status", *, bars: bool = False) -> "RenderableType":
    """A node's status for people; with ``bars``, progress as a watcher likes it."""
    from rich.console import Group
    from rich.text import Text

    fit = f"fit {status.fit}" if status.fit else "no fit yet"
    if status.members:
        fit += f" of {status.members} {'node' if status.members == 1 else 'nodes'}{without(status)}"
    parts: list[RenderableType] = [
        Text(plain(f"{status.node} in network {status.network}"), style="bold"),
        Text(
            f"{fit}; {status.elapsed_seconds:.1f} s; {status.round_milliseconds:.1f} ms a round; "
            f"{size(status.memory_bytes)} of memory; desmr-node {plain(status.version)}",
            style="dim",
        ),
        Text(doing(status), style=_style(status)),
    ]
    if status.waiting_for:
        parts.append(Text(plain("waiting for " + ", ".join(status.waiting_for)), style="yellow"))
    if status.phase not in _PHASES:
        parts += [Text(""), _progress(status, bars)]
    if status.history:
        parts += [Text(""), _rounds(status)]
    if status.peers:
        parts += [Text(""), _peers(status)]
    return Group(*parts)


def _style(status: "pb.Status") -> str:
    if status.paused or (status.phase == "done" and status.lost):
        return "yellow"
    return {"failed": "bold red", "done": "green"}.get(status.phase, "")


def _progress(status: "pb.Status", bars: bool) -> "RenderableType":
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    rows = [("outer round", status.outer, status.outer_limit)]
    if status.inner:
        rows.append(("inner round", status.inner, status.inner_limit))
    made = Table.grid(padding=(0, 2))
    for title, done, limit in rows:
        count = f"{done} of at most {limit}" if title == "outer round" else f"{done} of {limit}"
        bar = [ProgressBar(total=max(limit, 1), completed=done, width=40)] if bars else []
        made.add_row(title, *bar, count)
    return made


def _rounds(status: "pb.Status") -> "Table":
    left_out = len(status.history) - _LAST_ROUNDS
    return table(
        {
            "outer" if left_out <= 0 else f"outer (last {_LAST_ROUNDS})": "right",
            "lambda": "right",
            "objective": "right",
            "variables": "right",
            "moved (s.e.)": "right",
            "spread (s.e.)": "right",
            "": "left",
        },
        [
            [
                str(line.outer),
                number(getattr(line, "lambda")),
                number(line.objective, 6),
                str(line.nonzeros),
                number(line.moved, 3),
                number(line.spread, 3),
                "" if line.accepted else "rejected",
            ]
            for line in status.history[-_LAST_ROUNDS:]
        ],
    )


def _peers(status: "pb.Status") -> "Table":
    return table(
        {
            "neighbour": "left",
            "state": "left",
            "release": "left",
            "sent": "right",
            "received": "right",
            "why": "left",
        },
        [
            [
                peer.node,
                peer.state,
                peer_release(peer),
                size(peer.bytes_sent),
                size(peer.bytes_received),
                peer.reason or _SUSPICIONS.get(peer.suspicion, ""),
            ]
            for peer in status.peers
        ],
    )
