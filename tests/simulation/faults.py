"""What goes wrong in the simulated world: each fault is one function, drawn by the seed and
carried out between two steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.simulation.page_model import Person, Tab

if TYPE_CHECKING:
    from tests.simulation.world import World


def _kill_web(world: World) -> None:
    web = world.generator.choice(world.webs)
    if web.process is None:
        return
    world.fault(f"{web.name} is killed")
    web.kill()

    def restart() -> None:
        if web.process is None:
            web.start()

    world.later(0.1, 3.0, restart)


def _kill_backend(world: World) -> None:
    running = [backend for backend in world.backends if backend.process.alive]
    if not running:
        return
    backend = world.generator.choice(running)
    world.fault(f"{backend.process.name} is killed")
    backend.process.kill()

    world.later(0.1, 3.0, world.start_backend)


def _second_backend(world: World) -> None:
    """Start another learning process while the old one goes on, or is stopped for a while and then goes on."""
    running = [backend for backend in world.backends if backend.process.alive]
    if not running or len(running) > 2:
        return
    old = running[-1]
    stopped = world.generator.choice((0.0, 1.0, 5.0, 15.0))
    old.process.frozen_until = world.loop.time() + stopped
    world.fault(f"a second learning process beside {old.process.name}, which is stopped for {stopped} s")
    world.start_backend()


def _kill_store(world: World) -> None:
    if not world.server.running:
        return
    lost = world.server.kill(keep=world.generator.choice((0.0, 1.0, world.generator.random())))
    world.fault(f"the store is killed; {lost} writes were not synced")

    def restart() -> None:
        if not world.server.running:
            world.server.start()

    world.later(0.05, 2.0, restart)


def _slow_store(world: World) -> None:
    slow = world.generator.choice((0.1, 0.5, 2.0, 12.0))
    world.fault(f"the store is slow: up to {slow} s a command")
    world.server.trouble.slow = slow
    world.later(0.5, 5.0, lambda: setattr(world.server.trouble, "slow", 0.0))


def _full_store(world: World) -> None:
    world.server.model.refuses = world.generator.choice(
        (
            "OOM command not allowed when used memory > 'maxmemory'.",
            "MISCONF Errors writing to the AOF file: No space left on device",
        )
    )
    world.fault(f"the store is full: {world.server.model.refuses}")
    world.later(0.2, 6.0, lambda: setattr(world.server.model, "refuses", ""))


def _break_connections(world: World) -> None:
    trouble, draw = world.server.trouble, world.generator.random
    trouble.breaks_before, trouble.breaks_after = draw() * 0.2, draw() * 0.3
    world.fault(f"connections break: {trouble.breaks_before:.2f} before, {trouble.breaks_after:.2f} after a command")

    def mend() -> None:
        trouble.breaks_before = trouble.breaks_after = 0.0

    world.later(0.2, 5.0, mend)


def _jump_clock(world: World) -> None:
    clocks = {
        "the store": world.store_clock,
        **{web.name: web.clock for web in world.webs},
        **{backend.process.name: backend.clock for backend in world.backends},
    }
    name = world.generator.choice(list(clocks))
    jump = world.generator.choice((-86_400_000, -60_000, -1000, 1000, 60_000, 3_600_000))
    clocks[name].off_ms += jump
    world.fault(f"the clock of {name} jumps by {jump} ms")


def _lose_workers(world: World) -> None:
    world.workers_fail = world.generator.uniform(0.1, 0.7)
    world.fault(f"workers fail: {world.workers_fail:.2f} of the tasks")
    world.later(0.5, 6.0, lambda: setattr(world, "workers_fail", 0.0))


def _bad_network(world: World) -> None:
    world.network = world.generator.uniform(0.2, 0.9)
    world.fault(f"the network is bad: {world.network:.2f} of the requests")

    def mend() -> None:
        world.network = world.scenario.network if world.troubled else 0.0

    world.later(0.5, 6.0, mend)


def _person(world: World) -> Person | None:
    busy = [person for person in world.people if person.pages and not person.finished]
    return world.generator.choice(busy) if busy else None


def _reload(world: World) -> None:
    if (person := _person(world)) is not None:
        keeps_nothing = world.generator.random() < 0.3
        world.fault(f"{person.name} reloads the page{', of which nothing was kept' if keeps_nothing else ''}")
        person.reload(keeps_nothing=keeps_nothing)


def _leave(world: World) -> None:
    if (person := _person(world)) is not None:
        seconds = world.generator.uniform(0.5, 20.0)
        world.fault(f"{person.name} closes the page and comes back after {seconds:.1f} s")
        person.leave(seconds)


def _second_tab(world: World) -> None:
    if (person := _person(world)) is not None and len(person.pages) < 3:
        world.fault(f"{person.name} opens a second tab")
        world.loop.create_task(person.use(Tab()))


#: Kind of fault → how often it is drawn.
FAULTS = {
    "kill web": 4,
    "kill backend": 2,
    "second backend": 2,
    "kill store": 3,
    "slow store": 2,
    "full store": 2,
    "break connections": 3,
    "jump clock": 3,
    "lose workers": 1,
    "bad network": 3,
    "reload": 2,
    "leave": 2,
    "second tab": 2,
}
STRIKE: dict[str, Callable[[World], None]] = {
    "kill web": _kill_web,
    "kill backend": _kill_backend,
    "second backend": _second_backend,
    "kill store": _kill_store,
    "slow store": _slow_store,
    "full store": _full_store,
    "break connections": _break_connections,
    "jump clock": _jump_clock,
    "lose workers": _lose_workers,
    "bad network": _bad_network,
    "reload": _reload,
    "leave": _leave,
    "second tab": _second_tab,
}
