"""Ranks in a ring: sums that are the same everywhere, payloads in order, strangers hung up on, and neighbours that go away."""

import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from threading import Condition, Event

import numpy as np
import pytest
import torch

from salmon.distributed.ring import Ring, RingBrokenError
from salmon.errors import SalmonError

HOST = "127.0.0.1"


class Board:
    """Where ranks that are threads leave word for each other, as processes do in torch's store."""

    def __init__(self):
        self._words, self._changed = {}, Condition()

    def set(self, key, value):
        with self._changed:
            self._words[key] = value.encode()
            self._changed.notify_all()

    def get(self, key):
        with self._changed:
            if not self._changed.wait_for(lambda: key in self._words, timeout=5):
                raise RuntimeError(key)
            return self._words[key]


def in_ring(size, work, *, timeout_s=5.0, store=None):
    """What the work gives in each rank, all at once."""
    store = store or Board()

    def one(rank):
        ring = Ring.meet(store, rank, size, host=HOST, timeout_s=timeout_s)
        try:
            return work(ring, rank)
        finally:
            ring.close()

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(one, range(size)))


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("length", [1, 2, 4, 1_001])
@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_every_rank_hears_the_same_sum(size, length, kind):
    parts = [torch.randn(length, dtype=kind) for _ in range(size)]
    whole = torch.stack(parts).double().sum(dim=0)

    def work(ring, rank):
        ring.all_reduce(parts[rank])
        return parts[rank]

    sums = in_ring(size, work)
    assert all(torch.equal(each, sums[0]) for each in sums)
    assert sums[0].double().numpy() == pytest.approx(whole.numpy(), rel=1e-5, abs=1e-5)


def test_more_than_the_network_buffers_hold_goes_round_without_a_standstill():
    def work(ring, rank):
        vector = torch.full((3_000_000,), float(rank + 1))
        ring.all_reduce(vector)
        ring.all_reduce(vector)
        return vector.unique().tolist()

    assert in_ring(3, work) == [[18.0]] * 3


def test_payloads_of_any_length_come_in_the_order_of_their_ranks():
    payloads = [b"", b"a", bytes(range(256)) * 10_000, b"end"]
    assert in_ring(4, lambda ring, rank: ring.all_gather(payloads[rank])) == [payloads] * 4


def test_a_stranger_that_knocks_first_is_hung_up_on():
    store = Board()

    def place(rank):
        with closing(Ring.meet(store, rank, 2, host=HOST, timeout_s=5.0)) as ring:
            return ring.all_gather(bytes([rank]))

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(place, 0)
        where, port = store.get("rank/0").decode().split()
        with socket.create_connection((where, int(port)), timeout=5) as stranger:
            stranger.sendall(b"GET / HTTP/1.0\r\n\r\n" + bytes(100))
            second = pool.submit(place, 1)
            assert first.result() == second.result() == [b"\0", b"\1"]
            with suppress(ConnectionResetError):
                assert stranger.recv(1) == b""


def test_a_rank_that_leaves_is_noticed_by_all():
    def work(ring, rank):
        if rank == 1:
            return "left"
        try:
            ring.all_reduce(torch.ones(8))
        except RingBrokenError:
            return "noticed"
        return "summed"

    assert in_ring(4, work) == ["noticed", "left", "noticed", "noticed"]


def test_a_silent_neighbour_counts_as_lost():
    over = Event()

    def work(ring, rank):
        if rank == 1:
            assert over.wait(timeout=5)
            return
        with pytest.raises(RingBrokenError, match=r"moved for 0\.2 s"):
            ring.all_gather(b"anybody?")
        over.set()

    in_ring(2, work, timeout_s=0.2)


def test_nobody_in_the_place_before_is_said():
    store = Board()
    store.set("token", "00" * 16)
    with socket.create_server((HOST, 0)) as listening:
        store.set("rank/0", f"{HOST} {listening.getsockname()[1]}")
        with pytest.raises(RingBrokenError, match="did not come"):
            Ring.meet(store, 1, 2, host=HOST, timeout_s=0.3)
    with pytest.raises(RingBrokenError, match="does not answer"):
        Ring.meet(store, 1, 2, host=HOST, timeout_s=0.3)


def test_an_address_of_another_machine_is_a_sentence():
    with pytest.raises(SalmonError, match=r"cannot listen at 192\.0\.2\.1"):
        Ring.meet(Board(), 0, 2, host="192.0.2.1", timeout_s=1)


def test_the_sum_does_not_depend_on_who_waits_for_whom():
    parts = np.random.default_rng(0).normal(size=(3, 100)).astype(np.float32)

    def work(ring, rank):
        found = []
        for _ in range(20):
            vector = torch.from_numpy(parts[rank].copy())
            ring.all_reduce(vector)
            found.append(vector.numpy())
        return np.stack(found)

    every = np.concatenate(in_ring(3, work))
    assert np.array_equal(every, np.broadcast_to(every[0], every.shape))
