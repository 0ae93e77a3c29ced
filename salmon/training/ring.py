"""Ranks in a ring of sockets: each sends to the next and hears from the one before, in the thread that trains.

Nothing is handed to another thread and no rank asks another whether it is ready, so that an exchange costs little more than its
bytes: where steps take a millisecond, threads that wake each other up cost more than the step.
"""

import secrets
import select
import socket
import struct
import time
from contextlib import ExitStack, suppress
from os import sched_yield
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from salmon.errors import SalmonError

_LENGTH = struct.Struct("!Q")
# Each rank that knocks says who it is, and that it comes from the same driver.
_TOKEN_BYTES = 16
_KNOCK = struct.Struct(f"!{_TOKEN_BYTES}sI")
_KNOCK_S = 1.0
# A neighbour that comes within this time is waited for awake: going to sleep and being woken can take longer. Other
# threads that want the core get it meanwhile.
_AWAKE_S = 0.001


class RingBrokenError(RuntimeError):
    """A neighbour is gone, or silent for too long."""


class Ring:
    """One place in a ring of `size` ranks. All ranks have to call the same methods in the same order."""

    def __init__(
        self, following: socket.socket | None, before: socket.socket | None, rank: int, size: int, timeout_s: float
    ) -> None:
        self._following, self._before = following, before
        self._rank, self._size, self._timeout_s = rank, size, timeout_s
        for neighbour in (following, before):
            if neighbour is not None:
                neighbour.setblocking(False)
                neighbour.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    @classmethod
    def meet(cls, store: Any, rank: int, size: int, *, host: str, timeout_s: float) -> "Ring":
        """Take a place: in `store`, one of torch's, ranks tell each other where they listen; `host` is where others reach this one."""
        if size == 1:
            return cls(None, None, rank, size, timeout_s)
        deadline = time.monotonic() + timeout_s
        with _listening(host) as listening, ExitStack() as unfinished:
            if rank == 0:
                store.set("token", secrets.token_hex(_TOKEN_BYTES))
            store.set(f"rank/{rank}", f"{host} {listening.getsockname()[1]}")
            token = bytes.fromhex(store.get("token").decode())
            where, port = store.get(f"rank/{(rank + 1) % size}").decode().split()
            try:
                following = unfinished.enter_context(socket.create_connection((where, int(port)), timeout=timeout_s))
                following.sendall(_KNOCK.pack(token, rank))
            except OSError as error:
                raise RingBrokenError(f"The next rank does not answer at {where}.") from error
            before = _first_with(listening, _KNOCK.pack(token, (rank - 1) % size), deadline)
            unfinished.pop_all()
        return cls(following, before, rank, size, timeout_s)

    def all_reduce(self, vector: torch.Tensor) -> None:
        """Write the sum of all ranks' vectors (K,) into this one; it is the same, bit for bit, everywhere.

        Each part of the vector goes round the ring twice: first it gathers what every rank has to add, then all hear the sum.
        """
        if self._size == 1:
            return
        parts = np.array_split(vector.numpy(), self._size)
        heard = np.empty_like(parts[0])
        for hop in range(2 * (self._size - 1)):
            out, into = parts[(self._rank - hop) % self._size], parts[(self._rank - hop - 1) % self._size]
            adding = hop < self._size - 1
            target = heard[: len(into)] if adding else into
            self._pass(_bytes_of(out), _bytes_of(target))
            if adding:
                into += target

    def all_gather(self, payload: bytes) -> list[bytes]:
        """The payloads of all ranks, in their order; each may have its own length."""
        found = [b""] * self._size
        found[self._rank] = payload
        for hop in range(self._size - 1):
            out, length = found[(self._rank - hop) % self._size], bytearray(_LENGTH.size)
            self._pass(memoryview(_LENGTH.pack(len(out))), memoryview(length))
            into = bytearray(_LENGTH.unpack(length)[0])
            self._pass(memoryview(out), memoryview(into))
            found[(self._rank - hop - 1) % self._size] = bytes(into)
        return found

    def close(self) -> None:
        """Leave the ring: both neighbours hear it at once, and the others from them."""
        for neighbour in (self._following, self._before):
            if neighbour is not None:
                neighbour.close()

    def _pass(self, out: memoryview, into: memoryview) -> None:
        """Send all of one piece on while all of another comes in: no rank waits for another's turn."""
        following, before = self._following, self._before
        assert following is not None and before is not None  # noqa: S101, PT018 - a lone rank passes nothing
        moved_at = time.perf_counter()
        try:
            while out or into:
                gone, come = _sent(following, out), _received(before, into)
                out, into = out[gone:], into[come:]
                if gone or come:
                    moved_at = time.perf_counter()
                elif time.perf_counter() < moved_at + _AWAKE_S:
                    sched_yield()
                else:
                    self._wait(following if out else None, before if into else None)
        except OSError as error:
            raise RingBrokenError("A neighbour in the ring is gone.") from error

    def _wait(self, following: socket.socket | None, before: socket.socket | None) -> None:
        """Sleep until one of the two can go on."""
        ready = select.poll()
        if following is not None:
            ready.register(following, select.POLLOUT)
        if before is not None:
            ready.register(before, select.POLLIN)
        if not ready.poll(1_000 * self._timeout_s):
            raise RingBrokenError(f"No neighbour in the ring moved for {self._timeout_s:g} s.")


def _sent(neighbour: socket.socket, piece: memoryview) -> int:
    """Bytes that could be sent now."""
    try:
        return neighbour.send(piece) if piece else 0
    except BlockingIOError:
        return 0


def _received(neighbour: socket.socket, piece: memoryview) -> int:
    """Bytes that had come."""
    if not piece:
        return 0
    try:
        come = neighbour.recv_into(piece)
    except BlockingIOError:
        return 0
    if not come:
        raise ConnectionResetError
    return come


def _bytes_of(part: NDArray[Any]) -> memoryview:
    return part.view(np.uint8).data


def _listening(host: str) -> socket.socket:
    try:
        return socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise SalmonError(
            f"A worker cannot listen at {host}, the address by which the cluster knows it: {error.strerror}.",
            hint="Start workers with an address of their own machine (--host).",
            where=host,
        ) from error


def _first_with(listening: socket.socket, knock: bytes, deadline: float) -> socket.socket:
    """The first connection that begins with the right knock; others are hung up on."""
    while (left := deadline - time.monotonic()) > 0:
        listening.settimeout(left)
        with ExitStack() as strangers, suppress(OSError):
            caller = strangers.enter_context(listening.accept()[0])
            caller.settimeout(min(left, _KNOCK_S))
            if secrets.compare_digest(caller.recv(len(knock), socket.MSG_WAITALL), knock):
                strangers.pop_all()
                return caller
    raise RingBrokenError("The rank before this one did not come.")
