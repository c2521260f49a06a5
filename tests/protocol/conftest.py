"""A bench of machines: events go in by hand, effects come out as lines of text that tests compare whole."""

from collections import deque
from functools import partial

import numpy as np
import pytest

from desmr_node.core.contributions import Closing
from desmr_node.core.fit import MemberFit
from desmr_node.core.share import Drain, Exchange, Finished, Neighbours, Sum
from desmr_node.protocol import events as ev
from desmr_node.protocol.machine import Machine, Setup
from desmr_node.protocol.messages import Abort, Ask, Done, Flood, Hello, Reject, Schema, Vector
from desmr_node.protocol.seal import Open


def show(message):
    match message:
        case Hello():
            standing = message.standing
            return f"hello at fit {standing.fit}{', active' if standing.active else ''}"
        case Flood(fit, number, records):
            return f"flood {fit}/{number} {'+'.join(r.origin for r in records)}"
        case Vector():
            return f"vector {message.fit} ({message.outer}, {message.inner})"
        case Ask(fit, number, missing, vectors):
            return f"ask {fit}/{number} {'+'.join(missing) or 'all'}{' and vectors' if vectors else ''}"
        case Abort(fit, origin, reason):
            return f"abort {fit} by {origin}: {reason}"
        case Done(fit):
            return f"done {fit}"
        case Reject(reason):
            return f"reject: {reason}"


def line(effect):
    """One effect as one line."""
    match effect:
        case ev.Send(peer, message):
            return f"to {peer}: {show(message)}"
        case ev.Drop(peer, reason, fault):
            return f"drop {peer}{' for its fault' if fault else ''}: {reason}"
        case ev.Enrol(fit):
            return f"enrol in {fit}"
        case ev.Compute(ticket, answer):
            return f"compute {ticket}: {_answer(answer)}"
        case ev.Keep(number, _, members):
            return f"keep fit {number} of {', '.join(members)}"
        case ev.Save(place):
            return f"save {place.fit}/{place.number}{', finished' if place.finished else ''}"
        case ev.Forget():
            return "forget the fit"
        case ev.Report(text):
            return f"report {text}"


def _answer(answer):
    match answer:
        case ev.Begin(graph, index):
            return f"begin as {index} of {graph.size}"
        case Neighbours(newest, matched):
            return ", ".join(f"{k} says {newest[k][0, 0]:g}, {len(matched[k])} matched" for k in newest)
        case Closing():
            return f"total {answer.loss[0]:g}"


def member_fit():
    return MemberFit(
        coef=np.zeros(2), intercept=0.0, lambda_=0.1, support=np.zeros(2, bool), converged=True,
        message="well", objective=0.0, pilot_objective=0.0, members=2,
        total_rows=9, rounds=1, admm_rounds=1, history=(),
    )  # fmt: skip


def conversation(name, sums=1, outer=1, inner=2, drain=False):
    """What a worker asks for, one request after the other; member x contributes ord(x), and sends it."""
    for _ in range(sums):
        yield total(ord(name[-1]))
    for v in range(outer):
        for t in range(inner):
            yield Exchange(v, t, np.full((2, 1), float(ord(name[-1]) + 1000 * v + 100 * t)))
        if drain:
            yield Drain(v)
        yield total(1.0)
    yield Finished(member_fit())


def total(number):
    return Sum(Closing(np.array([float(number)]), np.zeros(1)), bytes(32))


class Bench:
    """Named machines, the messages between them (first in, first out each way), and workers that act."""

    def __init__(self, names, edges, talk=conversation, **setup):
        self.now, self.talk = 0.0, talk
        self.edges = [tuple(edge) for edge in edges]
        self.wires = {pair: deque() for one, other in self.edges for pair in ((one, other), (other, one))}
        self.kept, self.said, self.scripts, self.todo = {}, [], {}, {name: deque() for name in names}
        self.machines = {}
        for name in names:
            self.boot(name, **setup)

    def boot(self, name, **setup):
        neighbours = tuple(b if a == name else a for a, b in self.edges if name in (a, b))
        defaults = {"schema": Schema("y", ("x",)), "settings": {"penalty": '"l1"'}}
        self.machines[name] = Machine(Setup("net", name, neighbours, **(defaults | setup)), self.now)

    def __getitem__(self, name):
        return self.machines[name]

    def tell(self, name, event):
        """Handle one event; what the machine wants done, as lines. Computing and enrolling wait in `todo`.

        What it writes down is among `said`, and left out of the answer: most tests are about other things.
        """
        effects = self.machines[name].handle(event, self.now)
        for effect in effects:
            match effect:
                case ev.Send(peer, message):
                    self.wires[name, peer].append(message)
                case ev.Compute() | ev.Enrol():
                    self.todo[name].append(effect)
                case ev.Keep(number, _, members):
                    self.kept[name] = number, members
        lines = [line(effect) for effect in effects]
        self.said += [(name, text) for text in lines]
        return [text for text in lines if not text.startswith(("save", "forget"))]

    def deliver(self, source, target):
        """The next message from one to the other."""
        return self.tell(target, ev.Received(source, self.wires[source, target].popleft()))

    def work(self, name):
        """Let the driver of a node enrol it or compute what is asked for next."""
        task = self.todo[name].popleft()
        if isinstance(task, ev.Enrol):
            return self.tell(name, ev.Enrolled(Open(name, task.fit)))
        if isinstance(task.answer, ev.Begin):
            self.scripts[name] = self.talk(name)
        return self.tell(name, ev.Computed(task.ticket, next(self.scripts[name])))

    def connect(self, one, other):
        """Both ends learn that their stream is up."""
        self.wires[one, other].clear()
        self.wires[other, one].clear()
        return self.tell(one, ev.Connected(other)) + self.tell(other, ev.Connected(one))

    def lose(self, one, other, reason="gone"):
        """Both ends learn that their stream is gone, and what was on it is lost."""
        self.wires[one, other].clear()
        self.wires[other, one].clear()
        return self.tell(one, ev.Lost(other, reason)) + self.tell(other, ev.Lost(one, reason))

    def up(self):
        for one, other in self.edges:
            self.connect(one, other)
        self.flow()
        return self

    def flow(self, idle=(), still=(), vanishes=lambda source, target, message: False):
        """Deliver and compute until nothing is left; the idle do not compute, the still do not even enrol."""
        for _ in range(100_000):
            ready = [pair for pair, wire in self.wires.items() if wire]
            busy = [name for name in self.todo if self._may_work(name, idle, still)]
            if not ready and not busy:
                return self
            for pair in ready:
                if self.wires[pair] and vanishes(*pair, self.wires[pair][0]):
                    self.wires[pair].popleft()
                elif self.wires[pair]:
                    self.deliver(*pair)
            for name in busy:
                if self._may_work(name, idle, still):
                    self.work(name)
        raise AssertionError("no end of messages")

    def _may_work(self, name, idle, still):
        todo = self.todo[name]
        return bool(todo) and name not in still and (name not in idle or isinstance(todo[0], ev.Enrol))

    def call(self, *names):
        for name in names or self.machines:
            self.tell(name, ev.Called())
        return self

    def tick(self, seconds):
        """Time passes, and every machine whose deadline it is hears of it."""
        self.now += seconds
        said = []
        for name, machine in self.machines.items():
            if machine.deadline() <= self.now:
                said += self.tell(name, ev.Ticked())
        return said

    def phases(self):
        return {name: m.phase for name, m in self.machines.items()}

    def all_in(self, phase):
        return set(self.phases().values()) == {phase}


@pytest.fixture
def bench():
    return Bench


@pytest.fixture
def pair():
    """Two nodes that have said hello."""
    return Bench("ab", ["ab"]).up()


@pytest.fixture
def path():
    """a - b - c - d, all of whom have said hello."""
    return Bench("abcd", ["ab", "bc", "cd"]).up()


@pytest.fixture
def lagging():
    """Two nodes that may be two rounds apart, and five rounds to go."""
    return Bench("ab", ["ab"], partial(conversation, inner=5, drain=True), max_lag=2).up()
