"""Scripts of the first Salmon, and the files that it left behind."""

import json
import random
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import httpx

AUTH = ("username", "a long password")
HERE = "http://localhost:8421"
SIX = {"targets": [0, 1, "two", "<b>three</b>", 4, 5]}


class OldScript:
    """A client that speaks to the server as published scripts do."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client = client

    async def get(self, path: str, status: int = 200, **options: Any) -> httpx.Response:
        return self._checked(await self.client.get(path, **{"auth": AUTH, **options}), status)

    async def post(self, path: str, status: int = 200, **options: Any) -> httpx.Response:
        return self._checked(await self.client.post(path, **{"auth": AUTH, **options}), status)

    async def init(self, exp: Any, status: int = 200, **options: Any) -> httpx.Response:
        text = exp if isinstance(exp, str) else json.dumps(exp)
        return await self.post("/init_exp", status, data={"exp": text}, **options)

    async def answer_one(self, puid: str | int = "puid-foo", **changed: Any) -> dict[str, Any]:
        query = (await self.client.get("/query")).raise_for_status().json()
        answer = {"winner": query["left"], "puid": puid, "response_time": 0.25, **query, **changed}
        # Scripts send JSON without saying that it is JSON.
        reply = await self.client.post("/answer", content=json.dumps(answer))
        assert reply.json() == {"success": True}, reply.text
        return answer

    @staticmethod
    def _checked(reply: httpx.Response, status: int) -> httpx.Response:
        assert reply.status_code == status, reply.text
        return reply


OLD_COLUMNS = [
    "head",
    "left",
    "right",
    "winner",
    "sampler",
    "score",
    "puid",
    "response_time",
    "network_latency",
    "time_received",
    "loser",
    "left_html",
    "right_html",
    "head_html",
    "winner_html",
    "loser_html",
    "left_filename",
    "right_filename",
    "head_filename",
    "winner_filename",
    "loser_filename",
    "time_received_since_start",
    "datetime_received",
    "start_time",
    "puid_num_responses",
    "num_responses",
]


def old_answers(count: int, *, n: int = 6, seed: int = 0) -> list[dict[str, Any]]:
    """Answers as the first Salmon stored them."""
    stream = random.Random(seed)
    made: list[dict[str, Any]] = []
    for number in range(count):
        head, left, right = stream.sample(range(n), 3)
        winner = stream.choice([left, right])
        made.append(
            {
                "head": head,
                "left": left,
                "right": right,
                "winner": winner,
                "sampler": ["ARR", "random"][number % 2],
                "score": [0.31, -9999][number % 2],
                "puid": f"p{number % 3}",
                "response_time": 1.25,
                "network_latency": 0.03,
                "time_received": 1_700_000_000.123 + number,
                "loser": right if winner == left else left,
            }
        )
    return made


def old_rows(answers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same as `/responses` of the first Salmon gave them."""
    given: dict[str, int] = {}
    rows: list[dict[str, Any]] = []
    for number, answer in enumerate(answers, start=1):
        given[answer["puid"]] = given.get(answer["puid"], 0) + 1
        row = dict(answer)
        for role in ("left", "right", "head", "winner", "loser"):
            row[f"{role}_html"] = f"<img src='/static/targets/{answer[role]}.png' />"
            row[f"{role}_filename"] = f"{answer[role]}.png"
        row |= {
            "time_received_since_start": answer["time_received"] - 1_699_999_990.0,
            "datetime_received": "2023-11-14T22:13:20.123000",
            "start_time": 1_699_999_990.0,
            "puid_num_responses": given[answer["puid"]],
            "num_responses": number,
        }
        rows.append({name: row[name] for name in OLD_COLUMNS})
    return rows


_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


@dataclass
class Dump:
    """Writes a Redis dump with values of the JSON module, as Redis and the module do."""

    version: int = 9
    content: bytearray = field(default_factory=bytearray)

    def json_tree(self, key: str, value: Any) -> Self:
        """A JSON value in the module's first encoding, node by node."""
        self.content += b"\x07" + text(key.encode()) + length(_module_id(0)) + _nodes(value) + length(0)
        return self

    def json_text(self, key: str, value: Any) -> Self:
        """A JSON value in the module's later encoding."""
        self.content += b"\x07" + text(key.encode()) + length(_module_id(3))
        self.content += length(5) + text(json.dumps(value).encode()) + length(0)
        return self

    def string(self, key: str, value: bytes) -> Self:
        self.content += b"\x00" + text(key.encode()) + text(value)
        return self

    def raw(self, content: bytes) -> Self:
        self.content += content
        return self

    def bytes(self) -> bytes:
        aux = b"\xfa" + text(b"redis-ver") + text(b"5.0.4") + b"\xfe\x00\xfb" + length(9) + length(0)
        return b"REDIS%04d" % self.version + aux + bytes(self.content) + b"\xff" + bytes(8)


def old_backup(config: Mapping[str, Any], answers: list[dict[str, Any]], *, trees: bool = True) -> Dump:
    """What `/download` of the first Salmon gave: JSON beside pickles."""
    dump = Dump()
    put = dump.json_tree if trees else dump.json_text
    put("exp_config", dict(config))
    dump.string("state-ARR", b"\x80\x04cos\nsystem\n(S'echo harm'\ntR.")
    put("start_time", 1_699_999_990.0)
    put("all-responses", answers)
    put("samplers", list(config.get("samplers", {})))
    dump.string("model-ARR", b"\x80\x04\x95")
    return dump


def length(number: int) -> bytes:
    if number < 1 << 6:
        return bytes([number])
    if number < 1 << 14:
        return (number | 0x4000).to_bytes(2, "big")
    return b"\x80" + number.to_bytes(4, "big") if number < 1 << 32 else b"\x81" + number.to_bytes(8, "big")


def text(content: bytes) -> bytes:
    return length(len(content)) + content


def _module_id(version: int) -> int:
    number = 0
    for letter in "ReJSON-RL":
        number = number << 6 | _LETTERS.index(letter)
    return number << 10 | version


def _nodes(value: Any) -> bytes:
    def kind(number: int) -> bytes:
        return length(2) + length(number)

    if value is None:
        return kind(0x1)
    if isinstance(value, bool):
        return kind(0x10) + length(5) + text(b"1" if value else b"0")
    if isinstance(value, int):
        return kind(0x8) + length(1) + length(value & (1 << 64) - 1)
    if isinstance(value, float):
        return kind(0x4) + length(4) + struct.pack("<d", value)
    if isinstance(value, str):
        return kind(0x2) + length(5) + text(value.encode())
    if isinstance(value, list):
        return kind(0x40) + length(2) + length(len(value)) + b"".join(map(_nodes, value))
    pairs = (kind(0x80) + length(5) + text(key.encode()) + _nodes(item) for key, item in value.items())
    return kind(0x20) + length(2) + length(len(value)) + b"".join(pairs)
