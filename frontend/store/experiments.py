"""Experiments in the store: their state, and their revisions, which are added and never rewritten."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from frontend.errors import ConflictError, GoneError, NotFoundError
from frontend.store.connection import Verbs, fields_of, values_of
from frontend.store.lua import END_RUN
from salmon.wire import BUNDLES, BUNDLING, EXPERIMENTS, REQUESTS, Keys, decode_json, encode_json
from salmon.wire.keys import NOBODY, draft_keys, draw_experiment_id

State = Literal["draft", "open", "paused", "closed"]
#: The state's own fields; all others are counters.
OWN_FIELDS = frozenset(
    {
        *("slug", "state", "revision", "owner", "created_ms", "opened_ms", "shared", "shares"),
        *("ended_by", "since_ms", "rehearsal_of"),
    }
)
#: Why an experiment closed or paused by itself: the key of the section `stopping`, and "" where somebody did it.
EndedBy = Literal["", "answers", "participants", "at", "accuracy_gain_below", "errors_above"]
#: What somebody may do with an experiment that is shared with them.
Share = Literal["view", "edit"]


@dataclass(frozen=True)
class Revision:
    """One version of an experiment's description.

    `source` is the file as it was written, `spec` the same with every default, as `salmon.spec.read_stored_spec` reads
    it, and `manifest` the JSON of its list of targets where they came in a ZIP. `app_version` is the version of Salmon
    that stored it; empty where that was not noted.
    """

    source: str
    spec: str
    manifest: str | None
    created_ms: int
    app_version: str = ""

    def encode(self) -> str:
        """Return the JSON that is stored."""
        return encode_json(vars(self))

    @staticmethod
    def decode(text: str) -> "Revision":
        """Return the revision of that JSON."""
        return Revision(**decode_json(text))


@dataclass(frozen=True)
class ExperimentState:
    """State of an experiment: all that may change after it was created. Fields that are not its own are counters.

    `owner` is the id of an account, and `shared` says by account what others may do. It is in its state since
    `since_ms`; `ended_by` says why, where it closed or paused by itself. Where it is the scratch copy in which
    simulated people rehearse another experiment, `rehearsal_of` is the id of that one.
    """

    experiment: str
    slug: str
    state: State
    revision: int
    owner: str
    created_ms: int
    opened_ms: int
    counters: dict[str, int]
    shared: dict[str, Share] = field(default_factory=dict)
    ended_by: EndedBy = ""
    since_ms: int = 0
    rehearsal_of: str = ""

    @property
    def tag(self) -> str:
        """What decides whether and how participants are served: it is compared where a turn begins."""
        return f"{self.state}|{self.revision}|{self.ended_by}"

    @property
    def lets_finish(self) -> bool:
        """Whether those who have begun may go on: also where it closed by itself."""
        return self.state == "open" or (self.state == "closed" and self.ended_by != "")


@dataclass(frozen=True)
class Change:
    """Who did what to an experiment, and when."""

    at_ms: int
    by: str
    what: str
    detail: str


class Experiments(Verbs):
    """Verbs about experiments."""

    async def create(
        self,
        slug: str,
        revision: Revision,
        *,
        owner: str,
        state: State,
        now_ms: int,
        rehearsal_of: str = "",
        expected_answers: int = 0,
    ) -> ExperimentState:
        """Create an experiment under a free name and return its state. `expected_answers` are those of a rehearsal.

        The name is taken first and in a command of its own, so two experiments never share one. A crash in between
        leaves a name without an experiment, which `list` skips and the next `create` reuses.
        """
        experiment = draw_experiment_id()
        if not await self._connection.do(lambda client: client.hsetnx(EXPERIMENTS, slug, experiment)):
            experiment = str(await self.find(slug))
            if await self._connection.do(lambda client: client.exists(Keys(experiment).state)):
                raise ConflictError(f"There is an experiment called {slug!r} already.", hint="Choose another name.")
        keys = Keys(experiment)
        values: dict[str, str | int] = {
            "slug": slug,
            "state": state,
            "revision": 1,
            "owner": owner,
            "created_ms": now_ms,
            "opened_ms": now_ms if state == "open" else 0,
        }
        if rehearsal_of:
            values |= {"rehearsal_of": rehearsal_of, "expected_answers": expected_answers}
        await self._connection.together(
            lambda pipeline: (
                pipeline.hsetnx(keys.spec, "1", revision.encode()),
                pipeline.hset(keys.state, mapping=cast("Any", values)),
            )
        )
        await self.announce(experiment)
        return await self.read(experiment)

    async def revise(self, experiment: str, revision: Revision, *, known: int) -> int:
        """Add a revision, make it the newest and return its number.

        The number is taken first and in a command of its own: of two who change the same revision, the second gets a
        ConflictError.
        """
        keys, number = Keys(experiment), known + 1
        if not await self._connection.do(lambda client: client.hsetnx(keys.spec, str(number), revision.encode())):
            raise ConflictError(
                "Somebody else has changed this experiment since you opened it.",
                hint="Load the page again; what you wrote is still in your own file or editor.",
            )
        await self._change((keys.state,), (("HSET", keys.state, "revision", number),))
        await self.announce(experiment)
        return number

    async def share(self, experiment: str, shared: Mapping[str, Share]) -> None:
        """Say which accounts beside the owner's may look at an experiment or change it."""
        state = Keys(experiment).state
        shares = encode_json(dict(sorted(shared.items())))
        await self._change((state,), (("HSET", state, "shares", shares), ("HDEL", state, "shared")))

    async def hand_over(self, account: str, to: str) -> int:
        """Give the experiments of an account to another, end what was shared with it, and return how many were given.

        All of them change at once. Ids of accounts are never given twice, so nobody gets
        what is left by an interruption.
        """
        found = [state for state in await self.list() if state.owner == account or account in state.shared]
        await self._connection.together(
            lambda pipeline: [
                pipeline.hset(
                    Keys(state.experiment).state,
                    mapping={
                        "owner": to if state.owner == account else state.owner,
                        "shares": encode_json({key: value for key, value in state.shared.items() if key != account}),
                    },
                )
                for state in found
            ]
        )
        return sum(state.owner == account for state in found)

    async def note_change(self, experiment: str, change: Change) -> None:
        """Append who did what to the experiment."""
        entry = {"at_ms": str(change.at_ms), "by": change.by, "what": change.what, "detail": change.detail}
        await self._connection.do(lambda client: client.xadd(Keys(experiment).changes, cast("Any", entry)))

    async def read_changes(self, experiment: str) -> tuple[Change, ...]:
        """Return everything that was done to an experiment, in order."""
        return tuple(
            Change(int(e["at_ms"]), e["by"], e["what"], e["detail"])
            for _, e in await self.read_change_entries(experiment)
        )

    async def read_change_entries(self, experiment: str) -> list[tuple[str, dict[str, str]]]:
        """Return the same as (stream id, fields), for bundles."""
        return await self._connection.do(lambda client: client.xrange(Keys(experiment).changes))

    async def read_counts(self, experiment: str) -> dict[str, str]:
        """Return the counters that figures are drawn from."""
        return await self._connection.do(lambda client: client.hgetall(Keys(experiment).counts))

    async def claim_message(self, experiment: str, event: str, *, now_ms: int) -> bool:
        """Note that somebody is told of an event now, and return whether nobody else has done so."""
        return bool(await self._connection.do(lambda client: client.hsetnx(Keys(experiment).told, event, str(now_ms))))

    async def forget_message(self, experiment: str, event: str) -> None:
        """Take back that somebody was told."""
        await self._connection.do(lambda client: client.hdel(Keys(experiment).told, event))

    async def note_message_problem(self, experiment: str, problem: str) -> None:
        """Note why the last message was not sent; nothing where it was."""
        await self._connection.do(lambda client: client.hset(Keys(experiment).told, "problem", problem))

    async def read_message_problem(self, experiment: str) -> str:
        """Return why the last message was not sent; nothing where it was, or none was due."""
        return await self._connection.do(lambda client: client.hget(Keys(experiment).told, "problem")) or ""

    async def delete(self, slug: str, experiment: str) -> None:
        """Delete an experiment: its name, its description, and all that is known of its participants.

        The answers and models, which carry no names, are left to the eraser (`People.delete_experiment`): this process
        may not delete them, so that no mistake can. The name and the state go first, so that an experiment whose
        deletion was interrupted is invisible too, and takes nothing more from pages that are still open.
        """
        keys = Keys(experiment)
        await self._connection.together(
            lambda pipeline: (pipeline.hdel(EXPERIMENTS, slug), pipeline.delete(keys.state))
        )
        arrivals: dict[str, str] = await self._connection.do(lambda client: client.hgetall(keys.arrivals))
        for participant in (*arrivals.values(), NOBODY):
            names = keys.of_participant(participant)
            await self._connection.do(lambda client, names=names: client.delete(*names))
        names = (
            *(keys.arrivals, keys.places, keys.events, keys.counts, keys.changes),
            *(keys.quality, keys.proposed, keys.prolific, keys.told, keys.spec),
        )
        await self._connection.do(lambda client: client.delete(*names))
        await self._connection.do(lambda client: client.delete(*draft_keys(experiment)))
        await self.announce(experiment)

    async def read_version(self) -> str:
        """Return what is another text after every announcement: while it is the same, `list` is."""
        newest = await self._connection.call("XREVRANGE", REQUESTS, "+", "-", "COUNT", 1)
        return str(newest[0][0]) if newest else ""

    async def announce(self, experiment: str) -> None:
        """Tell the backend that an experiment is new or has changed."""
        await self._connection.do(
            lambda client: client.xadd(
                REQUESTS, cast("Any", {"kind": "experiment", "experiment": experiment}), maxlen=10_000, approximate=True
            )
        )

    async def note_bundle(self, experiment: str, values: Mapping[str, Any]) -> None:
        """Note what is known of the nightly bundles of an experiment; it stays when the experiment is deleted."""
        text = encode_json(dict(values))
        await self._connection.do(lambda client: client.hset(BUNDLES, experiment, text))

    async def read_bundles(self) -> dict[str, dict[str, Any]]:
        """Return what was noted of nightly bundles, by experiment."""
        found: dict[str, str] = await self._connection.do(lambda client: client.hgetall(BUNDLES))
        return {experiment: decode_json(text) for experiment, text in found.items()}

    async def lock_bundles(self, owner: str, *, lives_seconds: int) -> bool:
        """Return whether `owner` may write nightly bundles for so long: one process at a time."""
        return bool(await self._connection.do(lambda client: client.set(BUNDLING, owner, nx=True, ex=lives_seconds)))

    async def unlock_bundles(self) -> None:
        """Let another process write nightly bundles."""
        await self._connection.do(lambda client: client.delete(BUNDLING))

    async def find(self, slug: str) -> str | None:
        """Return the id of the experiment of this name."""
        return await self._connection.call("HGET", EXPERIMENTS, slug)

    async def list(self) -> tuple[ExperimentState, ...]:
        """Return all experiments, the newest first."""
        names: dict[str, str] = await self._connection.do(lambda client: client.hgetall(EXPERIMENTS))
        hashes: list[dict[str, str]] = await self._connection.together(
            lambda pipeline: [pipeline.hgetall(Keys(experiment).state) for experiment in names.values()]
        )
        found = [parse_state(e, h) for e, h in zip(names.values(), hashes, strict=True) if h]
        return tuple(sorted(found, key=lambda item: -item.created_ms))

    async def read(self, experiment: str) -> ExperimentState:
        """Return the state of an experiment."""
        values = await self.read_fields(experiment)
        if not values:
            raise GoneError("This experiment was deleted.", hint="Nothing was written.")
        return parse_state(experiment, values)

    async def read_fields(self, experiment: str) -> dict[str, str]:
        """Return the fields of its state as they are stored, for bundles; none where there is no such experiment."""
        return values_of(await self._connection.call("HGETALL", Keys(experiment).state))

    async def read_revision(self, experiment: str, revision: int) -> Revision:
        """Return one version of its description."""
        value = await self._connection.do(lambda client: client.hget(Keys(experiment).spec, str(revision)))
        if value is None:
            raise NotFoundError(f"Experiment {experiment!r} has no revision {revision}.")
        return Revision.decode(value)

    async def read_revisions(self, experiment: str) -> dict[int, str]:
        """Return every version of its description as the JSON that is stored, by its number."""
        found: dict[str, str] = await self._connection.do(lambda client: client.hgetall(Keys(experiment).spec))
        return {int(number): found[number] for number in sorted(found, key=int)}

    async def archive(self, experiment: str) -> None:
        """Close an experiment for good: the first Salmon's addresses, which mean the newest one, skip it."""
        key = Keys(experiment).state
        await self._change((key,), (("HSET", key, "state", "closed", "archived", 1),))
        await self.announce(experiment)

    async def set_state(self, experiment: str, state: State, *, now_ms: int) -> None:
        """Open, pause or close; the first opening is remembered as the start of the run."""
        key = Keys(experiment).state
        opened = await self._connection.do(lambda client: client.hget(key, "opened_ms"))
        values: dict[str, str | int] = {"state": state, "ended_by": "", "since_ms": now_ms}
        if state == "open" and opened in {None, "0"}:
            values["opened_ms"] = now_ms
        if state == "open":
            values["archived"] = 0  # an experiment that is opened again is no longer archived
        await self._change((key,), (("HSET", key, *fields_of(values)),))
        await self.announce(experiment)

    async def end_run(self, experiment: str, ended_by: EndedBy, sentence: str, *, now_ms: int) -> bool:
        """Close an open experiment by itself, or pause it where too much fails, and note why
        (atomic); return whether it was open.
        """
        state: State = "paused" if ended_by == "errors_above" else "closed"
        keys = Keys(experiment)
        detail = f"{state} by itself: {sentence}"
        ended = await self._connection.run(
            END_RUN, (keys.state, keys.changes), (state, ended_by, now_ms, f"stopping.{ended_by}", "state", detail)
        )
        if ended:
            await self.announce(experiment)
        return bool(ended)


def parse_state(experiment: str, values: Mapping[str, str]) -> ExperimentState:
    """Return the state of the fields that are stored of it, in the store or in a bundle."""
    return ExperimentState(
        experiment=experiment,
        slug=values["slug"],
        state=cast("State", values["state"]),
        revision=int(values["revision"]),
        owner=values["owner"],
        created_ms=int(values["created_ms"]),
        opened_ms=int(values["opened_ms"]),
        counters={name: int(value) for name, value in values.items() if name not in OWN_FIELDS},
        # Earlier versions stored a list of names, which are the ids of their accounts; all could change the experiment.
        shared=decode_json(values["shares"])
        if "shares" in values
        else dict.fromkeys(decode_json(values.get("shared", "[]")), "edit"),
        ended_by=cast("EndedBy", values.get("ended_by", "")),
        since_ms=int(values.get("since_ms", values["opened_ms"])),
        rehearsal_of=values.get("rehearsal_of", ""),
    )
