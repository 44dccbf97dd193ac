"""All reachable worlds, breadth first, so that the trace to whatever is found is a shortest one."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from tests.model import promises
from tests.model.steps import steps
from tests.model.world import Bounds, Mechanisms, World, beginning, tidy


@dataclass(frozen=True, slots=True)
class Found:
    """How many worlds were looked at, and the shortest way to a broken promise if there is one."""

    worlds: int
    broken: str = ""
    trace: tuple[str, ...] = ()
    last: World | None = None


class Map:
    """The worlds seen, how each was first reached, and which worlds lead to it without a fault, a person or a new
    event."""

    def __init__(self) -> None:
        start = beginning()
        self.worlds = [start]
        self.numbers = {start: 0}
        self.before = [-1]
        self.labels = [""]
        self.helpers: list[list[int]] = [[]]

    def reach(self, before: int, label: str, world: World, helps: bool) -> int | None:
        """The world's number if it is new."""
        number = self.numbers.get(world)
        new = number is None
        if number is None:
            number = self.numbers[world] = len(self.worlds)
            self.worlds.append(world)
            self.before.append(before)
            self.labels.append(label)
            self.helpers.append([])
        if helps:
            self.helpers[number].append(before)
        return number if new else None

    def trace(self, number: int) -> tuple[str, ...]:
        """How it was first reached."""
        labels: list[str] = []
        while number > 0:
            labels.append(self.labels[number])
            number = self.before[number]
        return tuple(reversed(labels))

    def stuck(self) -> int | None:
        """The first world from which no good one can be reached."""
        todo = [number for number, world in enumerate(self.worlds) if promises.is_good(world)]
        well = set(todo)
        while todo:
            for number in self.helpers[todo.pop()]:
                if number not in well:
                    well.add(number)
                    todo.append(number)
        return next((number for number in range(len(self.worlds)) if number not in well), None)


def explore(
    mechanisms: Mechanisms,
    bounds: Bounds,
    never: frozenset[str] = promises.NEVER,
    *,
    always_possible: bool = True,
) -> Found:
    """Looks for a broken promise among `never`; if there is none, for a world that is stuck."""
    seen, todo = Map(), deque([0])
    while todo:
        number = todo.popleft()
        for label, world, broken, helps in steps(seen.worlds[number], mechanisms, bounds):
            wrong = never.intersection(broken) or never.intersection(
                {promises.SKIPPED} if promises.skips(world) else ()
            )
            if wrong:
                return Found(len(seen.worlds), min(wrong), (*seen.trace(number), label), world)
            if (new := seen.reach(number, label, tidy(world, mechanisms), helps)) is not None:
                todo.append(new)
    if always_possible and (stuck := seen.stuck()) is not None:
        return Found(len(seen.worlds), promises.STUCK, seen.trace(stuck), seen.worlds[stuck])
    return Found(len(seen.worlds))
