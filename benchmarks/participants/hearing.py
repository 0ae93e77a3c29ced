"""How soon an answer is heard: until the first query on anybody's screen whose model has seen it."""

from bisect import bisect_left
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import redis

from benchmarks.participants.crowd import Diary
from salmon.cli.data_directory import DataDirectory
from salmon.records import Answer
from salmon.wire import EXPERIMENTS, Keys, decode_answer
from salmon.wire.keys import place_of


@dataclass(frozen=True)
class Record:
    """An experiment as it lies in the store: answers with their stream ids, (generation, cursor) of every generation,
    how long its refit and the newest search took (ms), and the name of every participant by the store's own id.
    """

    answers: list[tuple[str, Answer]]
    history: list[tuple[int, str]]
    milliseconds: list[tuple[float, float]]
    names: dict[str, str]


def read_store(data: Path, slug: str, sampler: str) -> Record:
    """What the run has left behind."""
    directory = DataDirectory(data)
    with redis.Redis.from_url(directory.redis_url("backend", directory.credentials().backend)) as client:
        experiment = client.hget(EXPERIMENTS, slug).decode()
        keys = Keys(experiment)
        answers = [
            (stream_id.decode(), decode_answer(experiment, {k.decode(): v.decode() for k, v in entry.items()}))
            for stream_id, entry in client.xrange(keys.answers)
        ]
        lines = [line for _, line in client.xrange(keys.history(sampler))]
        arrivals = client.hgetall(keys.arrivals)
    names = {participant.decode(): identity.decode().partition(":")[2] for identity, participant in arrivals.items()}
    history = [(int(line[b"generation"]), line[b"cursor"].decode()) for line in lines]
    milliseconds = [(float(line[b"refit_ms"]), float(line[b"search_ms"])) for line in lines]
    return Record(answers, history, milliseconds, names)


def seconds_to_be_heard(record: Record, diary: Diary) -> np.ndarray:
    """For every answer: seconds from its being stored to the first display of a query whose model has seen it."""
    cursors = [place_of(cursor) for _, cursor in record.history]
    generations = [generation for generation, _ in record.history]
    displays = sorted(
        (diary.shown[shown], answer.served.generation)
        for _, answer in record.answers
        if (shown := (record.names[answer.served.participant], answer.served.trial)) in diary.shown
        and answer.served.trial_type != "fallback"
    )
    waits: list[float] = []
    for stream_id, answer in record.answers:
        first = bisect_left(cursors, place_of(stream_id))
        if first == len(cursors):
            continue
        received = answer.received_ms / 1000
        wanted = generations[first]
        heard = next((at for at, generation in displays if at >= received and generation >= wanted), None)
        if heard is not None:
            waits.append(heard - received)
    return np.array(waits)
