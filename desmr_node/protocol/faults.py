"""Whose fault it is decides what happens: a peer's costs it its edge, a member's ends the fit."""

from desmr_node.errors import DesmrError


class PeerFault(DesmrError):
    """A neighbour broke the protocol; the text says how, without its name."""


class FitFailure(DesmrError):
    """The fit cannot go on, for a reason all members will be told."""
