"""Whose fault it is decides what happens: a peer's costs it its edge, a member's ends the fit."""

from desmr_node.errors import DesmrError


class PeerFault(DesmrError):  # noqa: N818 - says what happened, which Error would not
    """A neighbour broke the protocol; the text says how, without its name."""


class FitFailure(DesmrError):  # noqa: N818 - likewise
    """The fit cannot go on, for a reason all members will be told."""
