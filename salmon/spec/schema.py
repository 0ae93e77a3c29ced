"""Define every key of an experiment's file, with its type and its default.

All values are frozen. Durations are timedeltas and shares are numbers in [0, 1]; the file writes them as `2h` and
`15%`. Targets are numbered from 0 in the order in which they are written. The first part defines the kinds of value,
each with its reader and how it is written back; the models follow, ending with `Spec`, the whole file.
"""

import re
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, ValidationInfo, model_validator

from salmon.errors import did_you_mean, listed
from salmon.spec import sampler_arguments, values
from salmon.spec.sampler_arguments import SamplerClass
from salmon.spec.values import FrozenMap, Misfit, scalar_of, web_address, word
from salmon.spec.yaml_tree import Scalar

MAX_TARGETS = 100_000
MIN_TARGETS = 3  # a triplet is made of three
SAMPLER_NAME = r"[A-Za-z0-9_-]{1,40}"


def _n_targets(info: ValidationInfo) -> int | None:
    return (info.context or {}).get("n_targets")


def _target(value: Any) -> str:
    if isinstance(value, dict):
        raise Misfit(
            sentence="{label} reads as a key and a value.",
            hint="Put quotes around text that contains a colon and a space.",
        )
    if isinstance(value, list):
        raise Misfit(sentence="{label} reads as a list.", hint="Put quotes around text that begins with a bracket.")
    scalar = values.scalar_of(value, "a text")
    if not scalar.quoted and not scalar.text:
        raise Misfit(sentence="{label} is empty.", hint="Write the target's text, or '' for an intended blank.")
    return scalar.text


def target_list(value: Any) -> Any:
    """Read the targets one by one, or their number."""
    if isinstance(value, list | tuple):
        items: list[Any] = list(value)  # pyright: ignore[reportUnknownArgumentType]
        if 0 < len(items) < MIN_TARGETS:
            raise Misfit(sentence=f"{_target_count(len(items))}; a triplet needs at least three.", hint="Add targets.")
        if len(items) > MAX_TARGETS:
            raise Misfit(f"at most {MAX_TARGETS:,} targets")
        return items
    count = values.whole(
        MIN_TARGETS, MAX_TARGETS, f"a list of targets, or their number from {MIN_TARGETS} to {MAX_TARGETS:,}"
    )
    return tuple(str(number) for number in range(count(value)))


def _target_count(count: int) -> str:
    return "There is one target" if count == 1 else f"There are {count} targets"


def _query(value: Any, info: ValidationInfo) -> tuple[int, int, int]:
    return sampler_arguments.query(value, _n_targets(info))


def _practice_query(value: Any, info: ValidationInfo) -> tuple[int, int, int, int]:
    items: list[Any] = list(value) if isinstance(value, list | tuple) else []  # pyright: ignore[reportUnknownArgumentType]
    if len(items) != 4:
        raise Misfit("a practice query of four targets, [head, left, right, nearer]")
    *_, nearer = values.every(items, lambda item: sampler_arguments.index(item, _n_targets(info)))
    head, left, right = sampler_arguments.query(items[:3], _n_targets(info))
    if nearer not in {left, right}:
        raise Misfit(
            sentence="{label} says that neither of its two comparisons is nearer.",
            hint=f"Write {left} or {right} last.",
        )
    return head, left, right, nearer


def _viewport(value: Any) -> Any:
    items: list[Any] = list(value) if isinstance(value, list | tuple) else []  # pyright: ignore[reportUnknownArgumentType]
    if len(items) != 2:
        raise Misfit("a width and a height in pixels, such as [800, 600]")
    return values.every(items, values.whole(1, 10_000, "a whole number of pixels from 1 to 10,000"))


def _keys(value: Any) -> Any:
    items: list[Any] = list(value) if isinstance(value, list | tuple) else []  # pyright: ignore[reportUnknownArgumentType]
    if len(items) != 2:
        raise Misfit("two keys, for left and right, such as [ArrowLeft, ArrowRight]")
    read = values.every(items, values.key_name)
    if read[0].casefold() == read[1].casefold():
        raise Misfit(sentence="{label} has the same key for left and right.", hint="Choose two different keys.")
    return read


def _deeply_frozen(value: Any) -> Any:
    return tuple(_deeply_frozen(item) for item in value) if isinstance(value, list | tuple) else value  # pyright: ignore[reportUnknownVariableType]


def _percentage(value: Any) -> int:
    wanted = "a whole percentage from 0 to 100"
    written = values.scalar_of(value, wanted)
    return values.whole(0, 100, wanted)(values.Scalar(written.text.strip().removesuffix("%"), quoted=False))


Text = Annotated[str, BeforeValidator(values.text)]
Target = Annotated[str, BeforeValidator(_target)]
Name = Annotated[str, BeforeValidator(values.word(SAMPLER_NAME, "a name of letters, digits, - and _ (at most 40)"))]
Flag = Annotated[bool, BeforeValidator(values.flag)]
Count = Annotated[int, BeforeValidator(values.whole(0))]
Positive = Annotated[int, BeforeValidator(values.whole(1))]
Integer = Annotated[int, BeforeValidator(values.whole())]
Milliseconds = Annotated[
    int, BeforeValidator(values.whole(0, 3_600_000, "a whole number of milliseconds from 0 to 3,600,000"))
]
Percentage = Annotated[int, BeforeValidator(_percentage)]
Share = Annotated[float, BeforeValidator(values.share), PlainSerializer(values.percent, str, when_used="json")]
Duration = Annotated[
    timedelta, BeforeValidator(values.duration), PlainSerializer(values.duration_text, str, when_used="json")
]
Moment = Annotated[datetime, BeforeValidator(values.moment), PlainSerializer(datetime.isoformat, str, when_used="json")]
Size = Annotated[str, BeforeValidator(values.size)]
Colour = Annotated[str, BeforeValidator(values.colour)]
Language = Annotated[str, BeforeValidator(values.language)]
WebAddress = Annotated[str, BeforeValidator(values.web_address)]
Keys = Annotated[tuple[str, str], BeforeValidator(_keys)]
Viewport = Annotated[tuple[int, int], BeforeValidator(_viewport)]
Query = Annotated[tuple[int, int, int], BeforeValidator(_query)]
PracticeQuery = Annotated[tuple[int, int, int, int], BeforeValidator(_practice_query)]
Argument = Annotated[sampler_arguments.Argument, BeforeValidator(_deeply_frozen)]
Loose = Annotated[Any, BeforeValidator(values.loose)]


def one_of(union: Any) -> BeforeValidator:
    """Return a validator for one of the words of a Literal."""
    return BeforeValidator(values.choice(*get_args(union)))


def at_least(count: int) -> BeforeValidator:
    """Return a validator for a list that is not shorter than this."""

    def read(value: Any) -> Any:
        if isinstance(value, list | tuple) and len(value) < count:  # pyright: ignore[reportUnknownArgumentType]
            raise Misfit(f"a list of at least {count}")
        return value  # pyright: ignore[reportUnknownVariableType]

    return BeforeValidator(read)


def _is_nothing(value: Any) -> bool:
    return isinstance(value, Scalar) and value.empty


class Part(BaseModel):
    """A frozen part of a spec that refuses undeclared keys. A key without a value means its default."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _default_for_nothing(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        default = {key for key, field in cls.model_fields.items() if not field.is_required()}
        return {key: value for key, value in data.items() if not (_is_nothing(value) and key in default)}  # pyright: ignore[reportUnknownVariableType]


Platform = Literal["link", "prolific", "connect", "sona", "mturk"]
MturkHost = Literal["sandbox", "live"]

#: What may stand in braces: our participant code, the completion code, and what platforms send in the link.
FIELDS = (
    *("puid", "code", "id"),
    *("PROLIFIC_PID", "STUDY_ID", "SESSION_ID"),
    *("participantId", "assignmentId", "projectId"),
    *("survey_code", "workerId", "hitId"),
)

_FIELD = re.compile(r"\{([A-Za-z_]{1,40})\}")
_PLACEHOLDER = re.compile(r"\{\{.*?\}\}|\$\{.*?\}|%[A-Za-z_]{3,}%|<[A-Za-z_ -]+>|\[\[.*?\]\]")
_EXAMPLES = frozenset(
    {
        "CODE",
        "YOURCODE",
        "YOUR_CODE",
        "YOUR-CODE",
        "COMPLETION_CODE",
        "TODO",
        "XXX",
        "XXXX",
        "XXXXX",
        "XXXXXX",
        "XXXXXXXX",
    }
)


def redirect_template(value: Any) -> str:
    """Read an address template with known fields only; a placeholder that nobody filled in is refused."""
    written = scalar_of(value, "a web address that begins with https://").text.strip()
    refuse_placeholder(written)
    fields = _FIELD.findall(written)
    bare = web_address(_FIELD.sub("x", written))
    for field in fields:
        if field not in FIELDS:
            raise Misfit(
                sentence=f"{{label}} has the field {{{field}}}, which nothing fills in.",
                hint=did_you_mean(field, FIELDS) or f"Known are {listed(FIELDS, 'and')}.",
            )
    if "{" in bare or "}" in bare:
        raise Misfit(sentence="{label} has a brace that belongs to no field.", hint="Write fields as {puid}.")
    return written


def completion_code_text(value: Any) -> str:
    """Read the code that a platform gave for a study, in the form that platforms use."""
    wanted = "a completion code of letters, digits, - and _"
    written = scalar_of(value, wanted).text.strip()
    refuse_placeholder(written)
    if written.upper() in _EXAMPLES:
        raise Misfit(sentence="{label} is still the example {found}.", hint="Copy the code from the platform.")
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", written):
        raise Misfit(wanted)
    return written


def refuse_placeholder(written: str) -> None:
    """Raise a Misfit if a text still holds {{%NAME%}}, ${name}, %NAME% or <name>."""
    if _PLACEHOLDER.search(written):
        raise Misfit(
            sentence="{label} still contains a placeholder: {found}.",
            hint="The platform fills placeholders into the link it shows, never into this file; write the real value.",
        )


class Sona(Part):
    """Credit in a SONA system, https://<school>.sona-systems.com."""

    school: Annotated[
        str,
        BeforeValidator(
            word(
                r"[a-z0-9-]{1,63}(\.sona-systems\.(com|net))?",
                "the school's name in its SONA address, such as psych-uni",
            )
        ),
    ]
    experiment_id: Positive
    credit_token: Annotated[
        str, BeforeValidator(word(r"[A-Za-z0-9-]{8,64}", "the credit token that SONA shows for the study"))
    ]


class Connect(Part):
    """A project on CloudResearch Connect."""

    project: Annotated[
        str, BeforeValidator(word(r"[A-Za-z0-9]{4,64}", "the project id in the address of the Connect project"))
    ]


class Mturk(Part):
    """The address to which the form of an external question is sent."""

    host: Annotated[MturkHost, one_of(MturkHost)] = "sandbox"


class Recruitment(Part):
    """Where participants come from, and where they go when they have finished."""

    platform: Annotated[Platform, one_of(Platform)] = "link"
    completion_code: Annotated[str, BeforeValidator(completion_code_text)] | None = None
    redirect: Annotated[str, BeforeValidator(redirect_template)] | None = None
    repeats: Count = 0  # how often the same person may come again
    sona: Sona | None = None
    connect: Connect | None = None
    mturk: Mturk | None = None


Device = Literal["desktop", "mobile"]
Fullscreen = Literal["off", "optional"]
OnFailure = Literal["nothing", "flag", "end"]
QuestionType = Literal["text", "number", "choice"]
ResumePolicy = Literal["continue", "restart", "block"]


class Html(Part):
    """Texts of the page and hooks into it, named as in the first Salmon.

    Other keys are kept for the experimenter's own use.
    """

    model_config = ConfigDict(frozen=True, extra="allow")
    __pydantic_extra__: dict[str, Loose] = Field(init=False)  # pyright: ignore[reportIncompatibleVariableOverride]

    title: Text = "Similarity judgements"
    instructions: Text = "Please select the <i>comparison</i> item that is most similar to the <i>target</i> item."
    debrief: Text = "<b>Thanks!</b> Please use the participant ID below."
    max_queries: Integer = 50  # answers before the debriefing; without end where it is 0 or less
    skip_button: Flag = False
    arrow_keys: Flag = True
    css: Text = ""
    js: Text = ""
    element_top: Text = ""
    element_middle: Text = ""
    element_bottom: Text = ""
    element_standalone: Text = ""
    query_params: tuple[Text, ...] = ("puid",)


class SamplerSpec(Part):
    """One sampler.

    `arguments` holds what was written for it, and what it takes of `sampling.common`.
    """

    name: str
    sampler_class: SamplerClass
    arguments: FrozenMap[str, Argument] = FrozenMap()
    test: bool = False  # its answers are never fitted


class Detail(Part):
    """The k-th query of every participant: a sampler, and possibly the query itself, [head, left, right]."""

    sampler: Text
    query: Query | None = None


class Sampling(Part):
    """How queries are divided among samplers."""

    probs: FrozenMap[str, Percentage] | None = None  # None: equal
    samplers_per_user: Annotated[
        int,
        BeforeValidator(
            values.whole(
                0, None, "0 (a sampler is drawn for every query) or the number of samplers of each participant"
            )
        ),
    ] = 0
    common: FrozenMap[str, Argument] = FrozenMap({"d": 2})
    details: FrozenMap[Positive, Detail] = FrozenMap()


class Page(Part):
    """How the page looks, and which inputs answer a query."""

    language: Language = "en"
    background: Colour = "white"
    stimulus_size: Size = "320px"
    keys: Keys = ("ArrowLeft", "ArrowRight")
    fixation_ms: Milliseconds = 0
    blank_ms: Milliseconds = 200
    min_rt_ms: Annotated[
        int, BeforeValidator(values.whole(100, 60_000, "a whole number of milliseconds from 100 to 60,000"))
    ] = 200
    warn_rt_ms: Milliseconds | None = None
    fullscreen: Annotated[Fullscreen, one_of(Fullscreen)] = "optional"
    devices: Annotated[tuple[Annotated[Device, one_of(Device)], ...], at_least(1)] = ("desktop", "mobile")
    min_viewport: Viewport | None = (
        None  # a window smaller than this, in CSS pixels, has to be enlarged before anything begins
    )
    strings: FrozenMap[str, Text] = FrozenMap()
    alt: FrozenMap[str, Text] = FrozenMap()  # file name of a target -> what a screen reader says
    trusted: Flag = False  # targets and texts may hold any HTML


class Consent(Part):
    """What participants agree to before anything else."""

    text: Text
    decline_url: WebAddress | None = None


class Instruction(Part):
    """One page of instructions."""

    text: Text
    image: Text | None = None  # the name of a file in the ZIP


class Practice(Part):
    """Trials before the experiment, [head, left, right, nearer]; they are never fitted."""

    queries: Annotated[tuple[PracticeQuery, ...], at_least(1)]
    feedback: Flag = True


class ComprehensionQuestion(Part):
    """A question about the instructions with one right option."""

    text: Text
    options: Annotated[tuple[Text, ...], at_least(2)]
    answer: Text

    @model_validator(mode="after")
    def _answer_is_an_option(self) -> Self:
        if self.answer not in self.options:
            raise Misfit("one of the options", hint=did_you_mean(self.answer, self.options), at=("answer",))
        return self


class Comprehension(Part):
    """Questions that must be answered correctly before the experiment begins."""

    questions: Annotated[tuple[ComprehensionQuestion, ...], at_least(1)]
    attempts: Positive = 2


class Question(Part):
    """A question after the trials."""

    name: Annotated[
        str,
        BeforeValidator(
            values.word(r"[A-Za-z_][A-Za-z0-9_]{0,39}", "a name of letters, digits and _ (it becomes a column)")
        ),
    ]
    text: Text
    type: Annotated[QuestionType, one_of(QuestionType)] = "text"
    options: tuple[Text, ...] = ()
    required: Flag = False

    @model_validator(mode="after")
    def _choices_have_options(self) -> Self:
        if self.type == "choice" and len(self.options) < 2:
            raise Misfit(sentence="{label} is a choice without options.", hint="Add options: [first, second].")
        if self.type != "choice" and self.options:
            raise Misfit(
                sentence=f"{{label}} has options, but its type is {self.type}.",
                hint="Write type: choice.",
                at=("options",),
            )
        return self


class Checks(Part):
    """Trials that show whether participants pay attention: obvious ones, repeats, and queries that everybody gets."""

    catch: Share = 0.0
    repeat: Share = 0.0
    shared: Count = 0  # how many queries every participant is asked
    on_failure: Annotated[OnFailure, one_of(OnFailure)] = "nothing"


class Stopping(Part):
    """When the experiment closes by itself: whichever comes first."""

    answers: Positive | None = None
    participants: Positive | None = None
    at: Moment | None = None
    accuracy_gain_below: Share | None = None


class Security(Part):
    """What old scripts need, and new ones do not."""

    accept_unsigned_answers: Flag = False


class Resume(Part):
    """What happens when a participant returns."""

    policy: Annotated[ResumePolicy, one_of(ResumePolicy)] = "continue"
    max_gap: Duration = timedelta(hours=2)


class Spec(Part):
    """The description of an experiment. `targets` is empty if a ZIP holds them."""

    targets: Annotated[tuple[Target, ...], BeforeValidator(target_list)] = ()
    html: Html = Html()
    samplers: FrozenMap[Name, SamplerSpec]
    sampling: Sampling = Sampling()
    page: Page = Page()
    consent: Consent | None = None
    instructions: tuple[Instruction, ...] = ()
    practice: Practice | None = None
    comprehension: Comprehension | None = None
    questions: tuple[Question, ...] = ()
    checks: Checks = Checks()
    recruitment: Recruitment = Recruitment()
    stopping: Stopping = Stopping()
    security: Security = Security()
    resume: Resume = Resume()
    seed: Annotated[int, BeforeValidator(values.whole(0, 2**53 - 1))] = 0

    @property
    def title(self) -> str:
        """Return the title of the page."""
        return self.html.title

    def to_json(self) -> str:
        """Return the spec as it is stored: JSON with every default, which `from_json` reads back as an equal spec."""
        return self.model_dump_json()

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the spec of that JSON; pydantic's ValidationError where it is none."""
        return cls.model_validate_json(text)

    @property
    def probabilities(self) -> dict[str, int]:
        """Return sampler → percentage; they add up to 100.

        By default all are equal, and the first gets the remainder.
        """
        if self.sampling.probs is not None:
            return {name: self.sampling.probs[name] for name in self.samplers}
        each, rest = divmod(100, len(self.samplers))
        return {name: each + (rest if place == 0 else 0) for place, name in enumerate(self.samplers)}
