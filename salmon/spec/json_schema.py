"""Describe the keys of an experiment's file as a JSON schema, for editors: their kinds,
choices, defaults and what each means.

The schema follows from the models of `salmon.spec.schema`, so it cannot list a key that the file may not have. It is a
help while writing, not a check: `parse_spec` alone decides what is right, and says more about it.
"""

import types
from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from functools import cache
from types import MappingProxyType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from salmon.spec.consistency import UNBUILT
from salmon.spec.sampler_arguments import ACTIVE_CLASSES, NOISE_MODELS, SAMPLER_CLASSES, argument_names, has_effect
from salmon.spec.schema import Spec

Schema = dict[str, Any]

#: Key -> what it means, as an editor says it. Items of lists are written without their place: `instructions.text`.
DESCRIPTIONS: Mapping[str, str] = MappingProxyType(
    {
        "targets": "The things to compare: a list of texts or HTML, or their number. Leave it out if targets come in a ZIP.",
        "title": "The title of the page, as html.title.",
        "html": "Texts of the participant page, and pieces of HTML for it.",
        "html.title": "The title of the page.",
        "html.instructions": "The question above every trial.",
        "html.debrief": "What participants read at the end.",
        "html.max_queries": "Answers that each participant gives; without end where it is 0.",
        "html.skip_button": "Whether participants may skip a query.",
        "html.arrow_keys": "Whether keys answer, as page.keys says.",
        "html.css": "Styles added to the page.",
        "html.js": "A script added to the page, which then runs in an origin of its own.",
        "html.element_top": "HTML at the top of the page.",
        "html.element_middle": "HTML between the head and its feet.",
        "html.element_bottom": "HTML at the bottom of the page.",
        "html.element_standalone": "HTML beside the page's own elements.",
        "samplers": "What chooses queries, by name. Without it, Adaptive is used.",
        "sampling": "How queries are divided among samplers.",
        "sampling.probs": "The percentage of queries of each sampler; together 100.",
        "sampling.samplers_per_user": "How many samplers each participant gets; 0 draws one for every query.",
        "sampling.race": "The share of trials that are held out to compare the samplers; each participant then gets one sampler.",
        "sampling.common": "Arguments of all samplers, such as d: 2.",
        "sampling.details": "The k-th query of every participant: its sampler, and possibly the query itself.",
        "sampling.details.sampler": "The sampler of this query.",
        "sampling.details.query": "The query itself: [head, left, right], counted from 0.",
        "page": "How the page looks, and which inputs answer a query.",
        "page.language": "The language of the page's own texts, such as en or de.",
        "page.background": "The colour behind the targets. A colour with # needs quotes.",
        "page.stimulus_size": "The size of the box that targets are shown in, such as 320px.",
        "page.keys": "Two keys that answer, for left and right.",
        "page.fixation_ms": "How long a fixation cross is shown before each trial.",
        "page.blank_ms": "How long the screen stays empty between trials.",
        "page.min_rt_ms": "Answers before this time are not accepted.",
        "page.warn_rt_ms": "Participants who answer faster are asked to take their time.",
        "page.max_trial_ms": "A trial that takes longer ends without an answer.",
        "page.enlarge": "Whether a button beside each picture shows it in the whole window.",
        "page.fullscreen": "Whether the page offers to fill the screen.",
        "page.devices": "The devices that may take part.",
        "page.min_viewport": "The smallest window that may take part: [width, height].",
        "page.strings": "Texts of the page that are replaced, by their names.",
        "page.alt": "What screen readers say for a picture, by its file name.",
        "page.trusted": "Whether targets and texts may hold any HTML, scripts included.",
        "consent": "What participants agree to before anything else.",
        "consent.text": "The text of the consent; empty lines divide paragraphs.",
        "consent.decline_url": "Where participants go who do not agree.",
        "instructions": "Pages that are read before the trials.",
        "instructions.text": "The text of the page.",
        "instructions.image": "A picture of the page: the name of a file in the ZIP, which is then no target.",
        "practice": "Trials before the experiment; they are never fitted.",
        "practice.queries": "The trials: [head, left, right, nearer], by number counted from 0 or by file name.",
        "practice.feedback": "Whether the page says if the answer was right.",
        "comprehension": "Questions that must be answered correctly before the trials begin.",
        "comprehension.questions": "The questions.",
        "comprehension.questions.text": "The question.",
        "comprehension.questions.options": "The options that one can choose.",
        "comprehension.questions.answer": "The right option.",
        "comprehension.attempts": "How often participants may try.",
        "questions": "Questions after the trials.",
        "questions.name": "The name of the column in exported files.",
        "questions.text": "The question.",
        "questions.type": "How it is answered.",
        "questions.options": "The options of a choice.",
        "questions.points": "How many points a Likert scale has.",
        "questions.required": "Whether it must be answered.",
        "checks": "Trials that show whether participants pay attention.",
        "checks.catch": "The share of trials with an obvious answer.",
        "checks.repeat": "The share of trials that repeat an earlier query with its sides swapped.",
        "checks.shared": "How many queries every participant is asked; they are never fitted.",
        "checks.on_failure": "What happens to participants who fail catch trials.",
        "checks.tolerate": "How many failed catch trials have no consequence.",
        "checks.obvious": "Catch trials: [head, nearer, farther], by number counted from 0 or by file name.",
        "recruitment": "Where participants come from, and where they go when they have finished.",
        "recruitment.platform": "The platform that sends participants.",
        "recruitment.completion_code": "The code that the platform shows for the study.",
        "recruitment.screen_out_code": "The code for participants who fail the checks.",
        "recruitment.redirect": "Where participants go in the end; {puid} and {code} are filled in.",
        "recruitment.invited_only": "Whether only people with a one-time link may take part.",
        "recruitment.unsent": "What happens at the end where answers cannot be sent.",
        "recruitment.repeats": "How often the same person may come again.",
        "recruitment.opens_at": "The time before which nobody gets in, such as 2027-01-31 18:00 (UTC).",
        "recruitment.prolific": "The study that Salmon makes at Prolific; what it pays is under payment.",
        "recruitment.prolific.minutes": "How many minutes the study takes.",
        "recruitment.prolific.places": "How many people may take part.",
        "recruitment.prolific.screen_out_places": "How many people may be paid for failing the checks.",
        "recruitment.prolific.spend_at_most": "The most that Salmon may spend on rewards, screen-outs and bonuses.",
        "recruitment.prolific.not_from": "Experiments, by their name in the link, whose participants do not see the study.",
        "recruitment.prolific.signed_links": "Whether only links that Prolific has signed are accepted.",
        "recruitment.sona": "The study in SONA.",
        "recruitment.sona.school": "The school's name in its SONA address.",
        "recruitment.sona.experiment_id": "The number of the study in SONA.",
        "recruitment.sona.credit_token": "The credit token that SONA shows.",
        "recruitment.sona.credit": "Who tells SONA to grant the credit: the participant's browser, or this server when they finish.",
        "recruitment.connect": "The project on CloudResearch Connect.",
        "recruitment.connect.project": "The project id in its address.",
        "recruitment.mturk": "The task on Mechanical Turk.",
        "recruitment.mturk.host": "The sandbox, or the real one.",
        "stopping": "When the experiment closes or pauses by itself; whoever has begun may finish.",
        "stopping.answers": "It closes at this number of answers.",
        "stopping.participants": "The number of places; it closes when so many participants have finished.",
        "stopping.at": "The time at which it closes, such as 2027-01-31 18:00 (UTC).",
        "stopping.errors_above": "It pauses where the pages of more participants than this report a failure.",
        "stopping.accuracy_gain_below": "It closes when the next stopping.per answers bring less accuracy than this, with a total error of 5 %.",
        "stopping.per": "The number of further answers that accuracy_gain_below is about.",
        "payment": "What participants get, for the list of payments; nothing is paid without a person's click.",
        "payment.currency": "The currency, in three letters.",
        "payment.reward": "What everybody who finishes gets.",
        "payment.screened_out": "What those get who fail the checks.",
        "payment.bonus": "Amounts for those who finish and meet every condition that is named.",
        "payment.bonus.amount": "The amount.",
        "payment.bonus.answers": "At least so many answers.",
        "payment.bonus.catch_accuracy": "At least this share of the catch trials answered rightly.",
        "payment.bonus.for_each_answer_above": "The amount is paid for each answer beyond this number.",
        "payment.bonus.at_most": "The most that is paid for such answers.",
        "security": "Who may take part without this server's own page.",
        "security.accept_unsigned_answers": "Whether scripts of the first Salmon may answer without tokens.",
        "security.compat": "Whether scripts of the first Salmon are served.",
        "security.origins": "Other sites that may show the page in a frame, or ask queries from pages of their own.",
        "resume": "What happens when a participant returns.",
        "resume.policy": "Whether they continue, begin again or are sent away.",
        "resume.max_gap": "How long they may be away, such as 2h.",
        "resume.abandoned_after": "After how long without a sign of them somebody else may come in their stead.",
        "notify": "Who is told, outside the console, that the experiment closed, is full, stalled or failed.",
        "notify.email": "The e-mail addresses that are written to; the server needs SALMON_SMTP_URL.",
        "notify.webhook": "The https address that gets a POST with JSON; its host must be in SALMON_WEBHOOK_HOSTS.",
        "notify.stalled_after": "It stalled where nobody has answered for so long while it is open, such as 6h.",
        "privacy": "How long data about participants are kept.",
        "privacy.keep_ids": "How long platform ids are kept, such as 30d.",
        "privacy.keep_answers": "How long all that participants gave is kept.",
        "privacy.network_hint": "Whether the console says who came from one network within three days; no address is stored.",
        "groups": "Groups of participants, by name; each participant is put into one in turn.",
        "groups.question": "The question above every trial of this group, in place of html.instructions.",
        "groups.instructions": "The pages that this group reads, in place of instructions.",
        "groups.instructions.text": "The text of the page.",
        "groups.instructions.image": "A picture of the page: the name of a file in the ZIP, which is then no target.",
        "groups.samplers": "The samplers that ask this group.",
        "groups.targets": "The targets that this group sees.",
        "groups.participants": "The number of places of this group.",
        "seed": "The number that all randomness begins with.",
    }
)
_ARGUMENTS: Mapping[str, str] = MappingProxyType(
    {
        "class": "The kind of sampler, where its name is another.",
        "test": "Whether its answers are kept apart for testing and never fitted.",
        "d": "The number of dimensions of the embedding.",
        "noise": "The noise model. Adaptive shows an embedding of this model and always searches with t-STE.",
        "module": "The noise model, by its older name.",
        "random_share": "The share of random queries, which measure the accuracy.",
        "leave_out": "Whose answers the model is fitted without: clickers, who agree with others no more than by chance, or nobody.",
        "n_queries": "The number of fixed queries.",
        "targets": "The targets to choose from, counted from 0.",
        "queries": "Fixed queries: [head, left, right].",
        "ridge": "The weight of the prior.",
        "lapse": "The share of answers that are guesses.",
        "k": "The exponent of the noise model PowerTSTE.",
        "alpha": "The degrees of freedom of the noise model TSTE.",
        "mu": "The constant of the noise model CKL.",
        "module__alpha": "alpha, by its older name.",
        "module__mu": "mu, by its older name.",
        "fresh_posterior": "Whether queries are ranked by all answers so far, or as the published sampler did.",
        "priority": "The order in which the queries of a round are asked.",
        "n_search": "How many random pairs of feet are compared for a head.",
        "scorer": "How queries are ranked.",
        "R": "Random queries before adaptive ones, as a multiple of the number of targets.",
        "n_top": "How many of the best queries of a head are asked.",
    }
)
_KINDS: Mapping[Any, str] = MappingProxyType(
    {
        str: "string",
        bool: "boolean",
        int: "integer",
        float: "number",
        Decimal: "number",
        timedelta: "string",
        datetime: "string",
    }
)


@cache
def spec_schema() -> Schema:
    """Return the JSON schema of an experiment's file. Keys that do not work yet are left out."""
    content = _model(Spec, "")
    properties = content["properties"]
    properties["title"] = {"type": "string", "description": DESCRIPTIONS["title"]}
    properties["samplers"] = _samplers()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Salmon experiment", **content}


@cache
def editor_schema() -> Schema:
    """Return the schema as editors of YAML get it: it refuses unknown keys, but no way of writing a value that is read.

    A text may look like a number, 15% is a number, and `yes` is true. The first type of each value is the one meant.
    """
    return _loosened(spec_schema())


#: Type of a value -> how else it may be written.
_WRITTEN = {
    "string": ("number", "boolean"),
    "integer": ("string",),
    "number": ("string",),
    "boolean": ("string",),
    "object": ("null",),
    "array": ("integer",),
}


def _loosened(part: Schema) -> Schema:
    loosened: Schema = {name: _loosened(value) if isinstance(value, dict) else value for name, value in part.items()}
    kind = part.get("type")
    if isinstance(kind, str):
        loosened["type"] = [kind, *_WRITTEN[kind]]
    return loosened


def _model(model: type[BaseModel], path: str) -> Schema:
    properties = {
        name: _field(field, f"{path}.{name}".lstrip("."))
        for name, field in model.model_fields.items()
        if (path, name) not in UNBUILT
    }
    required = [name for name, field in model.model_fields.items() if field.is_required() and path]
    content: Schema = {
        "type": "object",
        "properties": {name: schema for name, schema in properties.items() if schema.get("properties") != {}},
        "additionalProperties": model.model_config.get("extra") == "allow",
    }
    return content | ({"required": required} if required else {})


def _field(field: FieldInfo, path: str) -> Schema:
    if path in {
        "practice.queries",
        "checks.obvious",
    }:  # written by number or by name, which the reader turns into numbers
        content: Schema = {"type": "array", "items": {"type": "array"}}
    else:
        content = _kind(field.annotation, path)
    if (default := _default(field)) is not None:
        content["default"] = default
    return content | {"description": DESCRIPTIONS.get(path, "")}


def _kind(annotation: Any, path: str) -> Schema:
    """Return the schema of a type."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _kind(arguments[0], path)
    if origin in {types.UnionType, Union}:
        return _kind(next(part for part in arguments if part is not type(None)), path)
    content: Schema = {"type": _KINDS[annotation]} if annotation in _KINDS else {}
    if origin is Literal:
        content = {"enum": list(arguments)}
    elif origin is tuple:
        content = {"type": "array", "items": _kind(arguments[0], path)}
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        content = _model(annotation, path)
    elif origin is not None and issubclass(origin, Mapping):
        content = {"type": "object", "additionalProperties": _kind(arguments[-1], path)}
    return content


def _default(field: FieldInfo) -> Any:
    """Return the default of a key as a file would say it; None where there is nothing to say."""
    if field.is_required() or isinstance(field.default, str | bool | int):
        return None if field.is_required() or field.default == "" else field.default
    if isinstance(field.default, tuple) and field.default and not isinstance(field.default[0], BaseModel):  # pyright: ignore[reportUnknownMemberType]
        return list(field.default)  # pyright: ignore[reportUnknownArgumentType, reportUnknownMemberType]
    return None


def _samplers() -> Schema:
    """Return the schema of samplers by name; those that are called as their class have its arguments."""
    named = {name: _arguments((name,)) for name in SAMPLER_CLASSES}
    return {
        "type": "object",
        "description": DESCRIPTIONS["samplers"],
        "properties": named,
        "additionalProperties": _arguments(SAMPLER_CLASSES),
    }


def _arguments(classes: tuple[Any, ...]) -> Schema:
    names = dict.fromkeys(name for each in classes for name in argument_names(each) if has_effect(each, name))
    choices = {"noise": list(NOISE_MODELS), "module": list(NOISE_MODELS), "class": list(SAMPLER_CLASSES)}
    properties: Schema = {
        name: {"description": _ARGUMENTS.get(name, "")} | ({"enum": choices[name]} if name in choices else {})
        for name in ("class", *names)
    }
    properties["test"] = {"type": "boolean", "default": False, "description": _ARGUMENTS["test"]}
    active = any(each in ACTIVE_CLASSES for each in classes)
    about = "Learns from the answers which queries to ask." if active else "Needs no model of the answers."
    return {"type": "object", "description": about, "properties": properties, "additionalProperties": False}
