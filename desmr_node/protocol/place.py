"""Where a node stands in a fit, as of the last network sum it knows: what it must not lose when killed."""

from dataclasses import dataclass

from desmr_node.protocol.lineage import Lineage
from desmr_node.protocol.messages import Introduction, Part, Vector


@dataclass(frozen=True, slots=True)
class Place:
    """Enough to go on from, and to serve every neighbour that may still lack something of ours.

    Saved before anything is sent that follows from it, so no neighbour is ever further ahead than the next
    sum: it lacks at most the ``parts`` of sum ``number`` and, if it was killed as well, our ``vectors`` of
    the outer round before that sum. ``introductions`` are empty until all are in; ``confirmed``: that sum was
    the last, and the others have been told, or will be; ``finished``: the result is written, and what is left
    is to serve others.
    """

    fit: int
    own: Introduction
    introductions: tuple[Introduction, ...] = ()
    number: int = 0
    parts: tuple[Part, ...] = ()
    vectors: tuple[Vector, ...] = ()
    lineage: Lineage | None = None
    confirmed: bool = False
    finished: bool = False
    confirmations: tuple[Part, ...] = ()
