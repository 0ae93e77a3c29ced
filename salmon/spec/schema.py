"""Define every key of an experiment's file, with its type and its default, ending with `Spec`, the whole file.

All values are frozen. The kinds of value are those of `salmon.spec.kinds`.
"""

import re
from datetime import timedelta
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from salmon.errors import did_you_mean, listed
from salmon.spec import values
from salmon.spec.kinds import (
    Argument,
    Colour,
    Count,
    Duration,
    EMail,
    Flag,
    Integer,
    Keeping,
    Keys,
    Language,
    Loose,
    Milliseconds,
    Moment,
    Money,
    Name,
    ObviousQuery,
    Origin,
    Part,
    Percentage,
    Positive,
    PracticeQuery,
    Query,
    SecureAddress,
    Share,
    Size,
    Target,
    Text,
    Viewport,
    Waiting,
    WebAddress,
    at_least,
    one_of,
    target_list,
)
from salmon.spec.sampler_arguments import SamplerClass
from salmon.spec.values import FrozenMap, Misfit, scalar_of, web_address, word

CreditBy = Literal["participant", "server"]
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
    credit: Annotated[CreditBy, one_of(CreditBy)] = "participant"


class Connect(Part):
    """A project on CloudResearch Connect."""

    project: Annotated[
        str, BeforeValidator(word(r"[A-Za-z0-9]{4,64}", "the project id in the address of the Connect project"))
    ]


class Mturk(Part):
    """The address to which the form of an external question is sent."""

    host: Annotated[MturkHost, one_of(MturkHost)] = "sandbox"


class ProlificStudy(Part):
    """The study that Salmon makes at Prolific; what it pays is in `payment`.

    `spend_at_most` bounds rewards, paid screen-outs and bonuses together, without Prolific's fees.
    """

    minutes: Annotated[int, BeforeValidator(values.whole(1, 1000))]
    places: Annotated[int, BeforeValidator(values.whole(1, 100_000))]
    screen_out_places: Annotated[int, BeforeValidator(values.whole(0, 100_000))] = 0  # paid for failing the checks
    spend_at_most: Money | None = None  # without it, Salmon pays nothing
    not_from: tuple[Text, ...] = ()  # who took part in these experiments does not see the study
    signed_links: Flag = False  # only links that Prolific has signed are accepted


Unsent = Literal["wait", "release"]


class Recruitment(Part):
    """Where participants come from, and where they go when they have finished."""

    platform: Annotated[Platform, one_of(Platform)] = "link"
    completion_code: Annotated[str, BeforeValidator(completion_code_text)] | None = None
    screen_out_code: Annotated[str, BeforeValidator(completion_code_text)] | None = None  # of who fails the checks
    redirect: Annotated[str, BeforeValidator(redirect_template)] | None = None
    invited_only: Flag = False  # only who has a one-time link takes part
    unsent: Annotated[Unsent, one_of(Unsent)] = "wait"  # at the end, where answers cannot be sent
    repeats: Count = 0  # how often the same person may come again
    opens_at: Moment | None = None  # nobody gets in before
    prolific: ProlificStudy | None = None
    sona: Sona | None = None
    connect: Connect | None = None
    mturk: Mturk | None = None


Device = Literal["desktop", "mobile"]
Fullscreen = Literal["off", "optional"]
OnFailure = Literal["nothing", "flag", "warn", "screen_out"]
QuestionType = Literal["text", "number", "choice", "multiple", "likert"]
ResumePolicy = Literal["continue", "same_browser", "restart", "block"]


class Html(Part):
    """Texts of the page and hooks into it, named as in the first Salmon.

    Other keys are kept for the experimenter's own use.
    """

    model_config = ConfigDict(frozen=True, extra="allow")
    __pydantic_extra__: dict[str, Loose] = Field(init=False)  # pyright: ignore[reportIncompatibleVariableOverride]

    title: Text = "Similarity judgements"
    instructions: Text = "Please select the <i>comparison</i> item that is most similar to the <i>target</i> item."
    debrief: Text = "<b>Thanks!</b> Please use the participant ID below."
    max_queries: Integer = 50  # answers before the debriefing; without end where it is 0 or, as in Salmon 1, -1
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
    race: Share = 0.0  # of trials that are held out to compare samplers; each participant then meets one sampler
    common: FrozenMap[str, Argument] = FrozenMap({"d": 2})
    details: FrozenMap[Positive, Detail] = FrozenMap()


class Page(Part):
    """How the page looks, and which inputs answer a query."""

    language: Language = "en"
    background: Colour = "white"
    stimulus_size: Size = values.FILL
    keys: Keys = ("ArrowLeft", "ArrowRight")
    fixation_ms: Milliseconds = 0
    blank_ms: Milliseconds = 200
    min_rt_ms: Annotated[
        int, BeforeValidator(values.whole(100, 60_000, "a whole number of milliseconds from 100 to 60,000"))
    ] = 200
    warn_rt_ms: Milliseconds | None = None
    max_trial_ms: (
        Annotated[
            int,
            BeforeValidator(values.whole(1000, 3_600_000, "a whole number of milliseconds from 1,000 to 3,600,000")),
        ]
        | None
    ) = None  # a trial that takes longer ends without an answer
    enlarge: Flag = False  # pictures can be enlarged by pressing a button
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


class ParticipantGroup(Part):
    """What differs for one group of participants; what it does not name is the same for all."""

    question: Text | None = None  # instead of html.instructions
    instructions: tuple[Instruction, ...] | None = None
    samplers: tuple[Text, ...] = ()  # these alone ask this group; all, where none is named
    targets: Annotated[tuple[Text, ...], at_least(3)] | None = None  # these alone are shown, by name of file or by text
    participants: Positive | None = None  # how many places the group has


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
    points: Annotated[int, BeforeValidator(values.whole(2, 11))] = 7  # of a Likert scale
    required: Flag = False

    @model_validator(mode="after")
    def _options_fit_the_type(self) -> Self:
        if self.type in {"choice", "multiple"} and len(self.options) < 2:
            raise Misfit(sentence="{label} is a choice without options.", hint="Add options: [first, second].")
        if self.type in {"text", "number"} and self.options:
            raise Misfit(
                sentence=f"{{label}} has options, but its type is {self.type}.",
                hint="Write type: choice.",
                at=("options",),
            )
        if self.type == "likert" and len(self.options) not in {0, 2, self.points}:
            raise Misfit(
                sentence=f"{{label}} has {len(self.options)} options for {self.points} points.",
                hint="Name both ends, options: [not at all, very much], or every point.",
                at=("options",),
            )
        if self.type == "multiple" and any(";" in option for option in self.options):
            raise Misfit(
                sentence="{label} has an option with a semicolon, which separates the options in the exports.",
                hint="Write it without one.",
                at=("options",),
            )
        return self


class Checks(Part):
    """Trials that show whether participants pay attention: obvious ones, repeats, and queries that everybody gets.

    `obvious` are queries [head, nearer, farther] for catch trials; without them, one foot is the head's own target.
    """

    catch: Share = 0.0
    repeat: Share = 0.0
    shared: Count = 0  # how many queries every participant is asked
    on_failure: Annotated[OnFailure, one_of(OnFailure)] = "nothing"
    tolerate: Count = 1  # so many failed catch trials have no consequence
    obvious: tuple[ObviousQuery, ...] = ()


class Stopping(Part):
    """When the experiment closes or pauses by itself: whichever comes first. Whoever has begun may finish."""

    answers: Positive | None = None
    participants: Positive | None = None  # so many places there are; it closes when all who hold one have finished
    at: Moment | None = None
    errors_above: Share | None = None  # pauses where the pages of more participants than this report a failure
    accuracy_gain_below: Share | None = None  # closes when the next `per` answers surely bring less accuracy than this
    per: Positive = 1000


class Notify(Part):
    """Who is told, outside the console, that the experiment closed, is full, stalled or failed."""

    email: tuple[EMail, ...] = ()
    webhook: SecureAddress | None = None
    stalled_after: Waiting = timedelta(hours=6)  # nobody answered for so long, while the experiment is open


class Bonus(Part):
    """An amount for those who have finished and meet every condition that is named."""

    amount: Money
    answers: Positive | None = None  # at least so many answers
    catch_accuracy: Share | None = None  # at least this share of the catch trials answered rightly
    for_each_answer_above: Count | None = None  # the amount is for each answer beyond this number
    at_most: Money | None = None  # of amounts for each answer


class Payment(Part):
    """What participants get, for the list of payments; the platform pays, and nothing is
    paid without a person's click.
    """

    currency: Annotated[str, BeforeValidator(word(r"[A-Z]{3}", "three capital letters, such as GBP, USD or EUR"))] = (
        "GBP"
    )
    reward: Money | None = None  # of everybody who finishes
    screened_out: Money | None = None  # of everybody who fails the checks
    bonus: tuple[Bonus, ...] = ()


class Security(Part):
    """Who may take part without this server's own page: scripts written for the first Salmon, and pages of other sites.

    Without `compat`, scripts are served unless the experiment has a platform, a consent
    or checks, which they pass over.
    """

    accept_unsigned_answers: Flag = False
    compat: Flag | None = None
    origins: tuple[Origin, ...] = ()


class Resume(Part):
    """What happens when a participant returns."""

    policy: Annotated[ResumePolicy, one_of(ResumePolicy)] = "continue"
    max_gap: Duration = timedelta(hours=2)
    abandoned_after: Waiting = timedelta(hours=24)  # somebody else may then come in their stead


class Privacy(Part):
    """How long data about participants are kept; what is removed is announced on the overview a week before.

    Platform ids and link parameters go `keep_ids` after a participant was seen last, everything that participants gave
    `keep_answers` after the last of it. `network_hint` tells who came from one network, without storing addresses.
    """

    keep_ids: Keeping = None
    keep_answers: Keeping = None
    network_hint: Flag = False


class Spec(Part):
    """The description of an experiment. `targets` is empty if a ZIP holds them."""

    targets: Annotated[tuple[Target, ...], BeforeValidator(target_list)] = ()
    html: Html = Html()
    samplers: FrozenMap[Name, SamplerSpec]
    sampling: Sampling = Sampling()
    page: Page = Page()
    consent: Consent | None = None
    instructions: tuple[Instruction, ...] = ()
    groups: FrozenMap[Name, ParticipantGroup] = FrozenMap()
    practice: Practice | None = None
    comprehension: Comprehension | None = None
    questions: tuple[Question, ...] = ()
    checks: Checks = Checks()
    recruitment: Recruitment = Recruitment()
    stopping: Stopping = Stopping()
    payment: Payment = Payment()
    notify: Notify = Notify()
    security: Security = Security()
    resume: Resume = Resume()
    privacy: Privacy = Privacy()
    seed: Annotated[int, BeforeValidator(values.whole(0, 2**53 - 1))] = 0

    def for_group(self, name: str) -> Self:
        """Return the description as one group of participants meets it; itself where there is no such group."""
        group = self.groups.get(name)
        if group is None:
            return self
        changes: dict[str, Any] = {}
        if group.question is not None:
            changes["html"] = self.html.model_copy(update={"instructions": group.question})
        if group.instructions is not None:
            changes["instructions"] = group.instructions
        return self.model_copy(update=changes)

    def fitted_by(self, sampler: str) -> frozenset[str]:
        """Return the samplers whose answers a sampler's embedding is fitted to: those of its groups; none means all.

        In a race each sampler learns from the answers to its own participants alone.
        """
        if self.sampling.race:
            return frozenset({sampler})
        of_groups = [frozenset(group.samplers) for group in self.groups.values() if sampler in group.samplers]
        everybody = not of_groups or any(not group.samplers for group in self.groups.values())
        return frozenset() if everybody else frozenset[str]().union(*of_groups)

    @property
    def serves_scripts(self) -> bool:
        """Return whether scripts of the first Salmon are served, which pass over consent, checks and platforms."""
        if self.security.compat is not None:
            return self.security.compat
        return self.consent is None and self.checks == Checks() and self.recruitment.platform == "link"

    @property
    def takes_signed_links_only(self) -> bool:
        """Return whether participants are let in only with a link that Prolific has signed."""
        study = self.recruitment.prolific
        return self.recruitment.platform == "prolific" and study is not None and study.signed_links

    @property
    def unprovable_by_scripts(self) -> tuple[str, ...]:
        """Return the keys that ask participants for a proof which scripts, who send an id alone, cannot give."""
        asked = {
            "recruitment.invited_only": self.recruitment.invited_only,
            "recruitment.prolific.signed_links": self.takes_signed_links_only,
            "resume.policy": self.resume.policy != "continue",
        }
        return tuple(key for key, is_asked in asked.items() if is_asked)

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
