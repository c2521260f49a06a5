"""A daemon that lies in every vector it sends, for demonstrations and tests: nothing else runs it.

`python -m desmr_node.runtime.liar --config node.toml [--attack sign-flip]`

It is a member like any other, with rows, key and certificates, and takes part in the sums; its attacks are
those of `datasets.liars`.
"""

import argparse
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from desmr_node.core.arrays import Matrix
from desmr_node.datasets.liars import ATTACKS, Liar
from desmr_node.protocol.events import Effect, Event, Received, Send
from desmr_node.protocol.machine import Machine, Setup
from desmr_node.protocol.messages import Vector


class LyingMachine(Machine):
    """Does all that a machine does, and replaces the vectors in what it wants sent."""

    def __init__(self, setup: Setup, now: float, attack: str, seed: int = 0) -> None:
        super().__init__(setup, now)
        self._liar = Liar(attack, seed)
        self._places = {name: place for place, name in enumerate(sorted(setup.neighbours))}
        self._rounds: dict[tuple[int, int, int], dict[str, Matrix]] = defaultdict(dict)

    def handle(self, event: Event, now: float) -> list[Effect]:
        """As ever, but for the truth."""
        if isinstance(event, Received) and isinstance(event.message, Vector):
            self._hear(event.peer, event.message)
        return [self._twisted(effect) for effect in super().handle(event, now)]

    def _hear(self, peer: str, vector: Vector) -> None:
        key = vector.fit, vector.outer, vector.inner
        heard = self._rounds[key]
        heard[peer] = vector.B
        if len(heard) == len(self._places) and len({B.shape for B in heard.values()}) == 1:
            self._liar.hear([heard[name] for name in sorted(heard)])
            self._rounds = defaultdict(dict, {k: v for k, v in self._rounds.items() if k > key})

    def _twisted(self, effect: Effect) -> Effect:
        if isinstance(effect, Send) and isinstance(effect.message, Vector):
            lie = self._liar.say(effect.message.B, self._places[effect.peer])
            return replace(effect, message=replace(effect.message, B=lie))
        return effect


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point."""
    import uvloop

    from desmr_node.config import load_node
    from desmr_node.runtime import logs
    from desmr_node.runtime.daemon import serve

    parser = argparse.ArgumentParser(prog="python -m desmr_node.runtime.liar", description=__doc__)
    parser.add_argument("--config", required=True, metavar="node.toml", help="the node's configuration file")
    parser.add_argument("--attack", choices=list(ATTACKS), default="sign-flip", help="default: %(default)s")
    chosen = parser.parse_args(argv)
    config = load_node(chosen.config)
    logs.configure(config.node, config.log.level, config.log.format)
    return uvloop.run(serve(config, machine=lambda setup, now: LyingMachine(setup, now, chosen.attack)))


if __name__ == "__main__":
    sys.exit(main())
