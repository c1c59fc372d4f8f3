"""The oracle: happens-before as sets of events, thread by thread and byte by byte. Slow and plain on purpose."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

Thread = tuple[int, int, int]  # slot, warp, lane
Byte = tuple[int, int]  # slot, offset
Verdict = set[tuple[str, bool]]  # kind, certain: False where only the last lane of a warp is remembered


@dataclass(frozen=True)
class Event:
    number: int
    thread: Thread | None  # None: the asynchronous proxy
    kind: str


@dataclass
class Barrier:
    """An mbarrier of one block: the events that its arrivals release."""

    gathering: set[Event] = field(default_factory=set)
    completed: set[Event] = field(default_factory=set)
    gathering_shown: set[Event] = field(default_factory=set)
    completed_shown: set[Event] = field(default_factory=set)


class Oracle:
    """Each thread has the set of events that happened before its next step."""

    def __init__(self, blocks: int, warps: int, lanes: int) -> None:
        self.threads = [(s, w, lane) for s in range(blocks) for w in range(warps) for lane in range(lanes)]
        self.known: dict[Thread, set[Event]] = {thread: set() for thread in self.threads}
        self.shown: dict[Thread, set[Event]] = {thread: set() for thread in self.threads}
        self.history: dict[Byte, list[Event]] = defaultdict(list)
        self.pending: dict[Byte, tuple[Thread, set[Event]]] = {}
        self.outstanding: dict[Byte, list[tuple[Thread, int]]] = defaultdict(list)
        self.filled: set[Byte] = set()
        self.fenced: dict[Thread, set[Event]] = {thread: set() for thread in self.threads}
        self.observed: dict[Thread, set[Event]] = {thread: set() for thread in self.threads}
        self.released: dict[Byte, set[Event]] = defaultdict(set)
        self.count = 0
        self.next: dict[Thread, tuple[set[Event], set[Event]]] = {}

    def event(self, thread: Thread | None, kind: str) -> Event:
        self.count += 1
        return Event(self.count, thread, kind)

    def of_warp(self, slot: int, warp: int) -> list[Thread]:
        return [thread for thread in self.threads if thread[:2] == (slot, warp)]

    # What an access would be guilty of

    def judge(self, what: str, accesses: Iterable[tuple[Thread, Byte]]) -> Verdict:
        found: Verdict = set()
        for thread, byte in accesses:
            past = self.history[byte]
            strange = [event for event in past if event not in self.known[thread]]
            reads = [event for event in strange if event.kind == "read"]
            writes = [event for event in strange if event.kind == "write"] if byte not in self.pending else []
            atomics = [event for event in strange if event.kind == "atomic"]
            is_read = what in ("read", "async_read", "strong_read")
            is_strong = what in ("atomic", "strong_read", "strong_write")
            if byte in self.pending:
                found.add(("read_in_flight" if is_read or what == "atomic" else "write_in_flight", True))
            elif (is_read or what == "atomic") and byte not in self.filled:
                found.add(("uninitialised_read", True))
            if writes:
                is_write = what in ("write", "issue", "strong_write")
                found.add(("race_write_after_write" if is_write else "race_read_after_write", True))
            if atomics and not is_strong:
                kind = "race_read_after_write" if is_read else "race_write_after_write"
                found.add((kind, self.other_warp(thread, atomics)))
            if reads and not is_read:
                sure = self.other_warp(thread, reads) and not self.outstanding[byte]
                found.add(("race_write_after_read", sure))  # a read that is outstanding hides those before it
            if self.outstanding[byte] and not is_read:
                found.add(("async_read_in_flight", True))
            if what == "async_read" and byte not in self.pending:
                last = [event for event in past if event.kind == "write"][-1:]
                hidden = [event for event in last if event.thread is not None and event not in self.shown[thread]]
                if hidden:
                    found.add(("missing_proxy_fence", not strange))
        return {(kind, sure) for kind, sure in found if sure or (kind, True) not in found}

    @staticmethod
    def other_warp(thread: Thread, events: Iterable[Event]) -> bool:
        return any(event.thread is None or event.thread[:2] != thread[:2] for event in events)

    # What a step does

    def access(self, what: str, accesses: Iterable[tuple[Thread, Byte]], token: int | None = None) -> None:
        kind = {"async_read": "read", "land": "write", "strong_write": "atomic"}.get(what, what)
        accesses = list(accesses)
        for thread, byte in accesses:  # the atomics of one instruction see one another
            if what in ("atomic", "strong_write"):
                self.released[byte] |= self.fenced[thread]
        for thread, byte in accesses:
            if what == "issue":
                self.pending[byte] = (thread, set(self.known[thread]))
                continue
            if what == "land":
                del self.pending[byte]
            if what in ("write", "land", "strong_write"):
                self.filled.add(byte)
            if what in ("atomic", "strong_read"):
                self.observed[thread] |= self.released[byte]
            if what == "strong_read":
                continue
            event = self.event(thread, kind)
            self.history[byte].append(event)
            self.known[thread].add(event)
            if token is not None:
                self.outstanding[byte].append((thread, token))

    def land_async(self, bytes_: Iterable[Byte], barrier: Barrier) -> None:
        for byte in bytes_:
            issuer, known = self.pending.pop(byte)
            self.filled.add(byte)
            event = self.event(None, "write")
            self.history[byte].append(event)
            learnt = {e for e in self.known[issuer] if e.thread is None or e.thread[:2] != issuer[:2]}
            barrier.gathering |= {event} | known | learnt
            barrier.gathering_shown |= self.shown[issuer]

    def retire(self, token: int) -> None:
        for byte, readers in self.outstanding.items():
            for thread, held in readers:
                if held == token:
                    event = self.event(thread, "read")
                    self.history[byte].append(event)
                    self.known[thread].add(event)
            self.outstanding[byte] = [reader for reader in readers if reader[1] != token]

    def barrier(self, arriving: Iterable[Thread], waiting: Iterable[Thread]) -> None:
        arriving = list(arriving)
        for thread in list(waiting):
            mates = [mate for mate in arriving if mate[0] == thread[0]]
            known = set().union(*(self.known[mate] for mate in mates))
            shown = set().union(*(self.shown[mate] for mate in mates))
            self.later(thread, known, shown)
        self.settle()

    def converge(self, threads: list[Thread]) -> None:
        known = set().union(*(self.known[thread] for thread in threads))
        for thread in threads:
            self.later(thread, known, set())
        self.settle()

    def later(self, thread: Thread, known: set[Event], shown: set[Event]) -> None:
        self.next[thread] = (self.known[thread] | known, self.shown[thread] | shown)

    def settle(self) -> None:
        for thread, (known, shown) in self.next.items():
            self.known[thread], self.shown[thread] = known, shown
        self.next = {}

    def memory_fence(self, threads: list[Thread]) -> None:
        """Of one warp: what any of its lanes has observed is known to all."""
        observed = set().union(*(self.observed[thread] for thread in threads))
        for thread in threads:
            self.known[thread] |= observed
            self.fenced[thread] = set(self.known[thread])

    def fence(self, threads: list[Thread]) -> None:
        for thread in threads:
            self.shown[thread] |= self.known[thread]

    def arrive(self, barrier: Barrier, threads: list[Thread]) -> None:
        for thread in threads:
            barrier.gathering |= self.known[thread]
            barrier.gathering_shown |= self.shown[thread]

    def complete(self, barrier: Barrier) -> None:
        barrier.completed |= barrier.gathering
        barrier.completed_shown |= barrier.gathering_shown

    def acquire(self, barrier: Barrier, threads: list[Thread]) -> None:
        for thread in threads:
            self.known[thread] |= barrier.completed
            self.shown[thread] |= barrier.completed_shown
