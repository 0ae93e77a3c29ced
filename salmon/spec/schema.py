"""What an experiment is: every key of its file, with its type and its default.

All values are frozen. Lengths of time are timedeltas and shares are numbers in [0, 1]; the file writes them as `2h` and
`15%`. Targets are numbered from 0 in the order they are written.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from salmon.spec import values
from salmon.spec.arguments import SamplerClass
from salmon.spec.frozen import FrozenMap
from salmon.spec.kinds import (
    Argument,
    Colour,
    Count,
    Duration,
    Flag,
    Integer,
    Keys,
    Language,
    Loose,
    Milliseconds,
    Moment,
    Name,
    Percentage,
    Positive,
    PracticeQuery,
    Query,
    Share,
    Size,
    Target,
    Text,
    Viewport,
    WebAddress,
    at_least,
    one_of,
    target_list,
)
from salmon.spec.part import Part
from salmon.spec.recruitment import Recruitment
from salmon.spec.suggestions import did_you_mean
from salmon.spec.values import Misfit

Device = Literal["desktop", "mobile"]
Fullscreen = Literal["off", "optional"]
OnFailure = Literal["nothing", "flag", "end"]
QuestionType = Literal["text", "number", "choice"]
ResumePolicy = Literal["continue", "restart", "block"]


class Html(Part):
    """Texts of the page and hooks into it, as the old program named them. Other keys are kept for the experimenter's own use."""

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
    """One sampler. `arguments` holds what was written for it, and for all in `sampling.common` where it takes it."""

    name: str
    sampler_class: SamplerClass
    arguments: FrozenMap[str, Argument] = FrozenMap()
    test: bool = False  # its answers are never fitted


class Detail(Part):
    """What the k-th query of every participant is: a sampler, and possibly the query itself, [head, left, right]."""

    sampler: Text
    query: Query | None = None


class Sampling(Part):
    """How samplers share the queries."""

    probs: FrozenMap[str, Percentage] | None = None  # None: equal
    samplers_per_user: Annotated[
        int,
        BeforeValidator(values.whole(0, None, "0 (drawn for every query) or how many samplers each participant meets")),
    ] = 0
    common: FrozenMap[str, Argument] = FrozenMap({"d": 2})
    details: FrozenMap[Positive, Detail] = FrozenMap()


class Page(Part):
    """How the page looks and what it takes as an answer."""

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
    """Questions that must be answered rightly before the experiment begins."""

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
    """Trials that tell attentive participants: obvious ones, repeats, and queries that everybody gets."""

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
    """What old scripts need and new ones do not."""

    accept_unsigned_answers: Flag = False


class Resume(Part):
    """What happens when a participant comes back."""

    policy: Annotated[ResumePolicy, one_of(ResumePolicy)] = "continue"
    max_gap: Duration = timedelta(hours=2)


class Spec(Part):
    """An experiment. `targets` is empty where a ZIP holds them."""

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
        """The page's title."""
        return self.html.title

    @property
    def probabilities(self) -> dict[str, int]:
        """Sampler -> percentage; they add up to 100. Where nothing is written all are equal and the first takes the rest."""
        if self.sampling.probs is not None:
            return {name: self.sampling.probs[name] for name in self.samplers}
        each, rest = divmod(100, len(self.samplers))
        return {name: each + (rest if place == 0 else 0) for place, name in enumerate(self.samplers)}
