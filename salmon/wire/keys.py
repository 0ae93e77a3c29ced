"""Name every key in Redis and make the ids in them; generate the server's access list: which process may write what."""

import hashlib
import secrets
import string
from collections.abc import Sequence
from dataclasses import dataclass

EXPERIMENTS = "salmon:experiments"
ACCOUNTS = "salmon:accounts"
#: What belongs to accounts. The braces keep it on the node of ACCOUNTS in a Redis Cluster, so one script reaches both.
INVITATIONS = "{salmon:accounts}:invitations"
SESSIONS = "{salmon:accounts}:sessions"
API_TOKENS = "{salmon:accounts}:api_tokens"
LAST_USED = "{salmon:accounts}:last_used"
GUESSES = "{salmon:accounts}:guesses"
USED_CODES = "{salmon:accounts}:used_codes"
RECOVERY_CODES = "{salmon:accounts}:recovery_codes"
ACCESS_LOG = "{salmon:accounts}:log"
FAILED_LOGINS = "{salmon:accounts}:failed_logins"
#: Hash: how many events each account got from Prolific; begins the keys of the events that have come.
PROLIFIC_EVENTS = "{salmon:accounts}:prolific_events"
#: Begins the keys of the files that experimenters are writing.
DRAFTS = "{salmon:accounts}:draft:"
REQUESTS = "salmon:requests"
BACKEND = "salmon:backend"
#: Hash erasure → JSON: which people are being erased, and how far that is; when it is over, nothing that leads to them.
ERASURES = "salmon:erasures"
#: Who carries out erasures at the moment: one process at a time.
ERASING = "salmon:erasing"
#: Hash experiment → JSON: which nightly bundles were written where, and who writes them at the moment.
BUNDLES = "salmon:bundles"
BUNDLING = "salmon:bundling"

#: Events kept for one experiment; the oldest go first.
EVENTS_KEPT = 1_000_000


@dataclass(frozen=True)
class Keys:
    """The keys of one experiment. The braces keep all of them on one node of a Redis Cluster."""

    experiment: str

    def _key(self, *parts: str) -> str:
        return ":".join(("salmon", "{" + self.experiment + "}", *parts))

    @property
    def spec(self) -> str:
        """Hash revision → JSON; a revision is never rewritten."""
        return self._key("spec")

    @property
    def state(self) -> str:
        """Hash: draft, open, paused or closed, and the counters."""
        return self._key("state")

    @property
    def arrivals(self) -> str:
        """Hash platform identity → participant: who is who, apart from the answers."""
        return self._key("arrivals")

    @property
    def places(self) -> str:
        """Hash: how many participants hold a place, how many of them have finished, and who has not."""
        return self._key("places")

    @property
    def told(self) -> str:
        """Hash: what somebody was told about by e-mail or webhook → when, and the problem with the last message."""
        return self._key("told")

    @property
    def answers(self) -> str:
        """The stream of answers: append-only, the record of truth."""
        return self._key("answers")

    @property
    def events(self) -> str:
        """The capped stream of what happened on the pages."""
        return self._key("events")

    @property
    def counts(self) -> str:
        """Hash of the counters that figures are drawn from; all of it follows from the answers."""
        return self._key("counts")

    @property
    def changes(self) -> str:
        """Stream: who changed what of the experiment, and when."""
        return self._key("changes")

    @property
    def erased(self) -> str:
        """Set of the SHA-1 of participants who were erased: what their pages still send is not recorded."""
        return self._key("erased")

    @property
    def quality(self) -> str:
        """JSON: what was last found out about the quality of participants; it can be found out again."""
        return self._key("quality")

    @property
    def proposed(self) -> str:
        """Hash: of how many participants `quality` proposes the exclusion and nobody has decided, and who they are."""
        return self._key("proposed")

    @property
    def prolific(self) -> str:
        """Hash: the study at Prolific, its payments, and digests of what was paid; no
        token and no id of a participant.
        """
        return self._key("prolific")

    @property
    def fence(self) -> str:
        """The number of the backend that may publish."""
        return self._key("fence")

    def participant(self, participant: str) -> str:
        """Hash: status, counters, code of one participant."""
        return self._key("p", participant)

    def asked(self, participant: str) -> str:
        """Set of the query keys this participant has seen."""
        return self._key("p", participant, "asked")

    def answered(self, participant: str) -> str:
        """Hash token → stream id of the answer it gave."""
        return self._key("p", participant, "answered")

    def given(self, participant: str) -> str:
        """Hash number → the query of a turn that is not over yet; empty where it is."""
        return self._key("p", participant, "given")

    def of_participant(self, participant: str) -> tuple[str, str, str, str]:
        """Return all keys of one participant: the hash, the queries seen, the tokens answered, and the turns."""
        return (
            self.participant(participant),
            self.asked(participant),
            self.answered(participant),
            self.given(participant),
        )

    def arriving(self, address: str) -> str:
        """When an address will have used up none of the arrivals that it is allowed at once; the address is hashed."""
        return self._key("arriving", hashlib.sha256(address.encode()).hexdigest()[:16])

    @property
    def network_key(self) -> str:
        """The secret under which addresses are hashed for the network hint; it expires,
        and no hash can be made again.
        """
        return self._key("arriving", "network")

    def queries(self, sampler: str) -> str:
        """List of queries to ask, best first."""
        return self._key("q", sampler)

    def pending(self, sampler: str) -> str:
        """Hash token → query and time, of queries taken and not yet answered."""
        return self._key("pending", sampler)

    def model(self, sampler: str) -> str:
        """Hash: the newest coordinates with generation and cursor."""
        return self._key("model", sampler)

    def history(self, sampler: str) -> str:
        """Stream: a line a generation."""
        return self._key("history", sampler)

    def restored(self, sampler: str) -> str:
        """Hash: the model that an import brought, until the learning process publishes its own."""
        return self._key("restored", sampler)

    def restored_history(self, sampler: str) -> str:
        """Stream: the generations that an import brought, before those of `history`."""
        return self._key("restored", sampler, "history")


def request(identifier: str) -> str:
    """Hash: progress and result of one request to the backend."""
    return f"salmon:request:{identifier}"


def draft_keys(owner: str) -> tuple[str, str, str]:
    """Return the keys of a draft: its versions, what is known of its ZIP, and who has it open.

    `owner` is the account that writes a new experiment, or the experiment whose file is changed.
    """
    return f"{DRAFTS}{owner}", f"{DRAFTS}{owner}:targets", f"{DRAFTS}{owner}:open"


def place_of(stream_id: str) -> tuple[int, int]:
    """Return the id of a stream's entry as numbers that are in the order of the stream; a missing part counts as 0."""
    milliseconds, _, number = stream_id.partition("-")
    return int(milliseconds), int(number or 0)


#: Ids are short names of small letters and digits. Most are drawn; what an import brings gets ids that follow from its
#: content, so that an import that was killed finds what it has written already.
_LETTERS = string.ascii_lowercase + string.digits
_PARTICIPANT_LENGTH = 12
_EXPERIMENT_LENGTH = 10
#: How the ids of those who try begin; of drawn ids, one in 10^9 would.
_TRYOUT = "tryout"

#: The participant of scripts that ask for nobody in particular: without answers, so that every query is new.
NOBODY = "nobodynobody"


def draw_participant_id() -> str:
    """Return a new id of a participant, or of a request to the learning process."""
    return _draw(_PARTICIPANT_LENGTH)


def draw_experiment_id() -> str:
    """Return a new id of an experiment."""
    return _draw(_EXPERIMENT_LENGTH)


def draw_account_id() -> str:
    """Return a new id of an account. No name of an account begins like it, so an id is never somebody's name."""
    return f"@{_draw(_PARTICIPANT_LENGTH)}"


def draw_tryout_id() -> str:
    """Return a new id of somebody who tries an experiment out."""
    return _TRYOUT + _draw(_PARTICIPANT_LENGTH - len(_TRYOUT))


def is_tryout(participant: str) -> bool:
    """Return whether this is the id of somebody who only tries an experiment out."""
    return participant.startswith(_TRYOUT)


def derive_participant_id(text: str) -> str:
    """Return the id of a participant that follows from a text: the same each time."""
    return _derive(text, _PARTICIPANT_LENGTH)


def derive_experiment_id(text: str) -> str:
    """Return the id of an experiment that follows from a text: the same each time."""
    return _derive(text, _EXPERIMENT_LENGTH)


def _draw(length: int) -> str:
    return "".join(secrets.choice(_LETTERS) for _ in range(length))


def _derive(text: str, length: int) -> str:
    return "".join(_LETTERS[byte % len(_LETTERS)] for byte in hashlib.sha256(text.encode()).digest()[:length])


#: Keys each process may read beside those that it writes: the learning process has no business with accounts.
FRONTEND_READS = ("salmon:*",)
BACKEND_READS = (EXPERIMENTS, REQUESTS, "salmon:{*}:*")
#: Keys each process may write.
FRONTEND_WRITES = (
    EXPERIMENTS,
    ACCOUNTS,
    "{salmon:accounts}:*",
    REQUESTS,
    ERASURES,
    BUNDLES,
    BUNDLING,
    "salmon:request:*",
    "salmon:{*}:spec",
    "salmon:{*}:state",
    "salmon:{*}:counts",
    "salmon:{*}:changes",
    "salmon:{*}:arrivals",
    "salmon:{*}:places",
    "salmon:{*}:p:*",
    "salmon:{*}:events",
    "salmon:{*}:arriving:*",
    "salmon:{*}:pending:*",
    "salmon:{*}:q:*",
    "salmon:{*}:quality",
    "salmon:{*}:proposed",
    "salmon:{*}:prolific",
    "salmon:{*}:told",
    "salmon:{*}:restored:*",
)
BACKEND_WRITES = (
    BACKEND,
    "salmon:request:*",
    "salmon:{*}:q:*",
    "salmon:{*}:pending:*",
    "salmon:{*}:model:*",
    "salmon:{*}:history:*",
    "salmon:{*}:fence",
)
#: The eraser alone may remove answers: it runs only while people or experiments are erased, in a process of its own.
ERASER_WRITES = (REQUESTS, f"{REQUESTS}:copy", ERASURES, ERASING, "salmon:request:*", "salmon:{*}:*")
_FRONTEND_COMMANDS = (
    "get set del expire hget hset hsetnx hdel hgetall hmget hexists hincrby hlen hscan sadd sismember smembers lpop lindex"
    " lrange llen lrem xadd xlen xrange xrevrange xread exists multi exec script|load waitaof"
)
_BACKEND_COMMANDS = (
    "get set incrby expire hget hset hdel hgetall hmget del rpush rename llen lrange xadd xread xrange xrevrange xlen"
    " exists multi exec eval eval_ro evalsha script|load"
)
_ERASER_COMMANDS = (
    "get set del unlink expire scan hget hset hdel hgetall hmget hexists hincrby hlen incrby sadd smembers xadd xdel xlen xrange xrevrange"
    " xinfo|stream xsetid rename exists multi exec eval evalsha script|load bgrewriteaof info"
)
#: The two exceptions to the frontend's limits: appending to the answers, and the scripts that do so.
_APPEND_ANSWERS = "(~salmon:{*}:answers +xadd)"
_ANSWER_SCRIPTS = (
    "(~salmon:{*}:answers ~salmon:{*}:p:* ~salmon:{*}:pending:* ~salmon:{*}:q:* ~salmon:{*}:state ~salmon:{*}:counts"
    " ~salmon:{*}:arrivals ~salmon:{*}:places ~salmon:{*}:changes ~salmon:{*}:arriving:* ~salmon:{*}:events ~salmon:{*}:erased"
    " ~salmon:{*}:prolific"
    " +eval +evalsha)"
)
_ACCOUNT_SCRIPTS = "(~salmon:accounts ~{salmon:accounts}:* +eval +evalsha)"
_REQUEST_SCRIPTS = "(~salmon:request:* +eval +evalsha)"


def access_list(frontend_password: str, backend_password: str, eraser_password: str) -> tuple[str, ...]:
    """Return the `user` lines for the server's configuration.

    `default` is off but keeps every permission on purpose: before the fix of its issue 14541, Redis replays MULTI/EXEC
    and scripts from the append-only file as `default` and drops, without an error, what that user may not do.
    """
    return (
        "user default off resetpass ~* &* +@all",
        _user(
            "frontend",
            frontend_password,
            FRONTEND_READS,
            FRONTEND_WRITES,
            _FRONTEND_COMMANDS,
            (_APPEND_ANSWERS, _ANSWER_SCRIPTS, _ACCOUNT_SCRIPTS, _REQUEST_SCRIPTS),
        ),
        _user("backend", backend_password, BACKEND_READS, BACKEND_WRITES, _BACKEND_COMMANDS, ()),
        _user("eraser", eraser_password, ("salmon:*",), ERASER_WRITES, _ERASER_COMMANDS, ()),
    )


def _user(
    name: str, password: str, reads: Sequence[str], writes: Sequence[str], commands: str, selectors: Sequence[str]
) -> str:
    keys = " ".join((*(f"%R~{pattern}" for pattern in reads), *(f"~{pattern}" for pattern in writes)))
    allowed = " ".join(f"+{command}" for command in commands.split())
    rules = f"user {name} on >{password} resetkeys {keys} -@all +@connection {allowed}"
    return " ".join((rules, *selectors))
