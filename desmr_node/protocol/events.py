"""What happens to a machine (events, past participles) and what it wants done (effects, imperatives)."""

from dataclasses import dataclass

from desmr_node.core.fit import MemberFit
from desmr_node.core.force import Suspicion
from desmr_node.core.graph import Graph
from desmr_node.core.share import Answer, Request
from desmr_node.protocol.lineage import Lineage
from desmr_node.protocol.messages import Message
from desmr_node.protocol.place import Place
from desmr_node.protocol.seal import Seal

# -- events --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Called:
    """The operator wants a fit."""


@dataclass(frozen=True, slots=True)
class Resumed:
    """The node was killed in the middle of a fit, or at its end; it was here, and had this seal."""

    place: Place
    seal: Seal


@dataclass(frozen=True, slots=True)
class Enrolled:
    """The node takes part in a fit, with this seal: the answer to `Enrol`."""

    seal: Seal


@dataclass(frozen=True, slots=True)
class Declined:
    """The node will not take part: the other answer to `Enrol`."""

    fit: int
    reason: str


@dataclass(frozen=True, slots=True)
class Connected:
    """A stream to the neighbour is up; nothing has been said on it."""

    peer: str


@dataclass(frozen=True, slots=True)
class Lost:
    """The stream to the neighbour is gone, or could not be made."""

    peer: str
    reason: str


@dataclass(frozen=True, slots=True)
class Received:
    """A message from the neighbour, checked by the codec."""

    peer: str
    message: Message


@dataclass(frozen=True, slots=True)
class Garbled:
    """Bytes from the neighbour that are no message; what is wrong with them."""

    peer: str
    reason: str


@dataclass(frozen=True, slots=True)
class Computed:
    """The worker has done what `Compute` with this ticket asked for, and wants this next.

    ``suspicion`` is what the last outer round showed of the neighbours: the same object until the next one.
    """

    ticket: int
    request: Request
    suspicion: Suspicion | None = None


@dataclass(frozen=True, slots=True)
class Broken:
    """The worker could not: its rows or settings do not allow the fit."""

    ticket: int
    reason: str


@dataclass(frozen=True, slots=True)
class Stopped:
    """The operator wants the fit to end, everywhere."""

    reason: str


@dataclass(frozen=True, slots=True)
class Ticked:
    """The time `Machine.deadline` asked for has come."""


Event = (
    Called
    | Resumed
    | Enrolled
    | Declined
    | Connected
    | Lost
    | Received
    | Garbled
    | Computed
    | Broken
    | Stopped
    | Ticked
)

# -- effects: to be carried out in the order given -----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Send:
    """Give the message to the neighbour's stream; if that is gone, drop it."""

    peer: str
    message: Message


@dataclass(frozen=True, slots=True)
class Drop:
    """Close the stream to the neighbour, telling it why. ``fault``: it broke the protocol."""

    peer: str
    reason: str
    fault: bool


@dataclass(frozen=True, slots=True)
class Enrol:
    """Make fresh keys for this fit and answer `Enrolled`, or `Declined`."""

    fit: int


@dataclass(frozen=True, slots=True)
class Begin:
    """The membership is known: what the worker's share of the fit starts with. ``again``: after a restart.

    ``declared``: how many rows every member says it has, if they all do.
    """

    graph: Graph
    index: int
    again: bool = False
    declared: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Compute:
    """Let the worker go on, and answer `Computed` or `Broken` with this ticket."""

    ticket: int
    answer: Begin | Answer


@dataclass(frozen=True, slots=True)
class Save:
    """Write down where the node stands, and its worker; before anything that comes after is carried out."""

    place: Place


@dataclass(frozen=True, slots=True)
class Forget:
    """The fit is off: there is no place to go back to."""


@dataclass(frozen=True, slots=True)
class Keep:
    """The fit is done: write its result, and who were lost on the way."""

    number: int
    fit: MemberFit
    members: tuple[str, ...]
    lineage: Lineage


@dataclass(frozen=True, slots=True)
class Report:
    """Tell the operator: the phase, or a peer's state, has changed. ``grave``: somebody should look."""

    text: str
    grave: bool = False


Effect = Send | Drop | Enrol | Compute | Save | Forget | Keep | Report
