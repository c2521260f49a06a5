"""A fit that loses members goes on without them, under a new number: what one attempt is heir to.

The members of the fit as it began are its founders. Whoever gives a neighbour up begins the next attempt and
lists only the neighbours it has left; all that hear of it, and are in the same fit, join. An attempt computes
only if it holds a strict majority of the founders, and is finished only when a strict majority of them has
confirmed that they hold its result. Nobody who has confirmed an attempt joins a later one, and nobody who has
joined a later one confirms an earlier: two majorities share a member, so no two attempts are ever finished.
docs/decisions/0014-lost-members.md has the reasons.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from desmr_node.protocol.messages import Introduction


@dataclass(frozen=True, slots=True)
class Lineage:
    """The fit as it began, and what has become of its members.

    ``founders`` are the neighbours of every member; ``lost`` says in which fit and outer round each one was
    given up, as known here; ``readmitted`` are those that were lost and let in again, which happens once.
    ``condemned`` were given up because they lie, and are not let in again.
    """

    base: int
    founders: dict[str, tuple[str, ...]] = field(hash=False)
    indispensable: frozenset[str] = frozenset()
    lost: dict[str, tuple[int, int]] = field(default_factory=dict, hash=False)
    readmitted: frozenset[str] = frozenset()
    condemned: frozenset[str] = frozenset()

    @classmethod
    def of(cls, fit: int, introductions: Mapping[str, Introduction]) -> "Lineage":
        """Of a fit whose members have just introduced themselves."""
        needed = frozenset(name for name, record in introductions.items() if record.indispensable)
        return cls(fit, {name: record.neighbours for name, record in introductions.items()}, needed)

    def is_majority(self, members: Iterable[str]) -> bool:
        """Whether these are more than half of the founders."""
        return 2 * len(set(members) & self.founders.keys()) > len(self.founders)

    def within_reach(self, here: str) -> set[str]:
        """Founders that may still be connected with this one, as far as is known here."""
        reached, waiting = {here}, [here]
        while waiting:
            for other in self.founders[waiting.pop()]:
                if other not in reached and other not in self.lost:
                    reached.add(other)
                    waiting.append(other)
        return reached

    def without(self, names: Iterable[str], fit: int, outer: int) -> "Lineage":
        """After these members were given up."""
        more = {name: (fit, outer) for name in names if name in self.founders and name not in self.lost}
        return replace(self, lost=self.lost | more)

    def condemning(self, names: Iterable[str]) -> "Lineage":
        """After these were found to lie."""
        return replace(self, condemned=self.condemned | (set(names) & self.founders.keys()))

    @property
    def excluded(self) -> tuple[str, ...]:
        """Those whom this member has nothing to do with any more, as it says in its introduction."""
        return tuple(sorted(self.lost.keys() | self.condemned))

    def again_with(self, name: str) -> "Lineage":
        """After a lost member was let in again."""
        lost = {other: when for other, when in self.lost.items() if other != name}
        return replace(self, lost=lost, readmitted=self.readmitted | {name})

    def found(self, members: Iterable[str]) -> "Lineage":
        """After these turned out to take part: whoever else gave one of them up, it is not lost."""
        here = set(members)
        return replace(self, lost={name: when for name, when in self.lost.items() if name not in here})

    def obstacle(self, here: str) -> str:
        """Why those that are left may not go on, for a person; empty if they may."""
        needed = sorted(self.indispensable & self.lost.keys())
        if needed:
            return f"{', '.join(needed)} must not be left out ([floors] indispensable)"
        left = self.within_reach(here)
        if not self.is_majority(left):
            return f"{len(left)} of {len(self.founders)} members are no majority"
        return ""
