"""Hypothesis strategies for what travels through the system: experiments as they are written, and broken files."""

import random
from pathlib import Path
from typing import Any

import yaml
from hypothesis import strategies as st

from salmon.spec import Spec, parse_spec
from salmon.spec.page_texts import PAGE_TEXTS
from salmon.spec.sampler_arguments import ACTIVE_CLASSES, NOISE_MODELS

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*/experiment.yaml"))

_NAMES = st.text("abcdefgXYZ_-0123", min_size=1, max_size=12)
_SHARES = st.one_of(st.integers(2, 100), st.integers(0, 100).map(lambda k: f"{k}%"), st.floats(0, 0.99))
_KEPT = st.one_of(st.just("forever"), st.builds(lambda days: f"{days}d", st.integers(1, 36_500)))
_DURATIONS = st.builds(lambda k, unit: f"{k}{unit}", st.integers(0, 300), st.sampled_from(["ms", "s", "min", "h", "d"]))
_AMOUNTS = st.integers(1, 1_000_000).map(lambda pence: f"{pence / 100:.2f}")
_WAITS = st.builds(lambda k, unit: f"{k}{unit}", st.integers(1, 300), st.sampled_from(["min", "h", "d"]))
_WORDS = st.sampled_from(
    ["no", "1.0", "2026-01-01", "null", "~", "1e3", "<<", "a: b", "# no comment", "'", "é", "0x1F", "[x"]
)

PROLIFIC_STUDY = {
    "minutes": 9,
    "places": 40,
    "spend_at_most": 80,
    "not_from": ["colors"],
    "signed_links": True,
}


def texts() -> st.SearchStrategy[str]:
    """Any text, with those that YAML takes for something else more often than chance would have it."""
    return st.one_of(_WORDS, st.text(st.characters(exclude_categories=["Cs"]), max_size=20))


def written_specs() -> st.SearchStrategy[dict[str, Any]]:
    """Experiments as an experimenter could write them: nested dicts and lists, all of them right."""
    return st.integers(3, 12).flatmap(_written)


def specs() -> st.SearchStrategy[Spec]:
    """Experiments as the program knows them."""
    return written_specs().map(lambda tree: parse_spec(as_yaml(tree), stored=True).spec)


def as_yaml(tree: Any) -> str:
    """A tree as the text of a file."""
    return yaml.dump(tree, Dumper=yaml.CSafeDumper, allow_unicode=True, sort_keys=False)


@st.composite
def _written(draw: st.DrawFn, n: int) -> dict[str, Any]:
    names = draw(st.lists(_NAMES, min_size=1, max_size=4, unique=True))
    samplers = {name: draw(_sampler(n)) for name in names}
    tree: dict[str, Any] = {
        "targets": draw(st.one_of(st.just(n), st.lists(texts(), min_size=n, max_size=n))),
        "samplers": samplers,
        "html": draw(_some({
            "title": texts(), "instructions": texts(), "max_queries": st.integers(-1, 500), "skip_button": st.booleans(),
            "css": texts(), "my_own_key": st.one_of(texts(), st.integers(), st.booleans(), st.lists(st.integers(), max_size=3)),
        })),
        "sampling": draw(_sampling(n, names)),
        "page": draw(_some({
            "language": st.sampled_from(["en", "pt-BR"]), "background": st.sampled_from(["red", "#fff", "rgb(1, 2, 3)"]),
            "stimulus_size": st.sampled_from(["320px", "12.5rem", 200]), "keys": st.just(["f", "ArrowRight"]),
            "fixation_ms": st.integers(0, 1000), "warn_rt_ms": st.none() | st.integers(0, 1000), "fullscreen": st.just("off"),
            "strings": st.dictionaries(st.sampled_from(sorted(PAGE_TEXTS)), texts(), max_size=3), "trusted": st.booleans(),
            "min_viewport": st.none() | st.lists(st.integers(1, 10_000), min_size=2, max_size=2),
        })),
        "checks": draw(st.fixed_dictionaries({"catch": st.integers(2, 50)}, optional={
            "on_failure": st.sampled_from(["nothing", "flag", "warn", "screen_out"]), "tolerate": st.integers(0, 9),
        })),
        "stopping": draw(_some({
            "answers": st.integers(1, 10**6), "at": st.datetimes().map(str),
            "participants": st.integers(1, 10**6), "errors_above": _SHARES,
        })),
        "payment": draw(_some({
            "currency": st.sampled_from(["GBP", "USD"]), "reward": _AMOUNTS,
            "bonus": st.lists(st.fixed_dictionaries({"amount": _AMOUNTS}, optional={"catch_accuracy": _SHARES}), max_size=2),
        })),
        "notify": draw(_some({
            "email": st.just(["ada@lab.example.org"]), "webhook": st.just("https://hooks.example.org/x?y=1"), "stalled_after": _WAITS,
        })),
        "privacy": draw(_some({"keep_ids": _KEPT, "keep_answers": _KEPT})),
        "resume": draw(_some({"policy": st.sampled_from(["continue", "restart", "block"]), "max_gap": _DURATIONS, "abandoned_after": _WAITS})),
        "seed": draw(st.integers(0, 2**53 - 1)),
    }  # fmt: skip
    if any(one.get("class", name) in ACTIVE_CLASSES for name, one in samplers.items()) and draw(st.booleans()):
        tree["stopping"] = tree.get("stopping", {}) | {
            "accuracy_gain_below": "0.5%",
            "per": draw(st.integers(1, 10**6)),
        }
    optional = {
        "consent": st.fixed_dictionaries({"text": texts()}, optional={"decline_url": st.just("https://example.org/x")}),
        "instructions": st.lists(st.fixed_dictionaries({"text": texts()}), max_size=3),
        "practice": st.fixed_dictionaries(
            {"queries": st.lists(_query(n).map(lambda q: [*q, q[1]]), min_size=1, max_size=3)}
        ),
        "questions": st.just([{"name": "age", "text": "How old?", "type": "number"}, {"name": "b", "text": "?"}]),
        "recruitment": st.sampled_from(
            [
                {"platform": "prolific", "completion_code": "C1", "redirect": "https://a.org/{puid}"},
                {"platform": "prolific", "completion_code": "C1", "prolific": PROLIFIC_STUDY},
            ]
        ),
    }
    return tree | draw(_some(optional))


def _some(values: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=values)


def _query(n: int) -> st.SearchStrategy[list[int]]:
    return st.permutations(range(n)).map(lambda order: list(order[:3]))


def _sampler(n: int) -> st.SearchStrategy[dict[str, Any]]:
    passive = st.one_of(
        st.fixed_dictionaries(
            {"class": st.sampled_from(["Random", "RoundRobin"])}, optional={"targets": st.permutations(range(n))}
        ),
        st.fixed_dictionaries(
            {"class": st.just("Validation")}, optional={"queries": st.lists(_query(n), min_size=1, max_size=3)}
        ),
    )
    active = st.fixed_dictionaries(
        {"class": st.sampled_from(["ARR", "SRR", "TSTE", "STE", "GNMDS", "CKL", "SOE"])},
        optional={"module": st.sampled_from(NOISE_MODELS), "R": st.floats(0, 50), "optimizer__lr": st.floats(0.001, 1)},
    )
    adaptive = st.fixed_dictionaries(
        {"class": st.sampled_from(["Adaptive", "Greedy", "Uncertainty"])},
        optional={"noise": st.sampled_from(NOISE_MODELS), "d": st.integers(1, 9), "test": st.booleans()},
    )
    return st.one_of(
        passive, active, adaptive, st.fixed_dictionaries({"class": st.just("Adaptive"), "random_share": _SHARES})
    )


@st.composite
def _sampling(draw: st.DrawFn, n: int, names: list[str]) -> dict[str, Any]:
    cuts = sorted(draw(st.lists(st.integers(0, 100), min_size=len(names) - 1, max_size=len(names) - 1)))
    shares = [high - low for low, high in zip([0, *cuts], [*cuts, 100], strict=True)]
    detail = st.fixed_dictionaries({"sampler": st.sampled_from(names)}, optional={"query": _query(n)})
    return draw(_some({
        "probs": st.just(dict(zip(names, shares, strict=True))),
        "samplers_per_user": st.integers(0, len(names)),
        "race": st.just("0%"),
        "common": _some({"d": st.integers(1, 5), "random_state": st.integers(0, 99), "initial_batch_size": st.integers(1, 99)}),
        "details": st.dictionaries(st.integers(1, 20), detail, max_size=3),
    }))  # fmt: skip


#: What finds its way into files: odd numbers, half-finished YAML, other alphabets, things from other programs.
_DEBRIS = (
    *("1e999", ".inf", ".nan", "9" * 5000, "-1", "0", "1", "101%", "null", "~", "yes", "Off", "2026-01-01", "12:30:45"),
    *(
        "[",
        "]",
        "{",
        "}",
        "[]",
        "{}",
        "- ",
        ": ",
        ":",
        "#",
        "&a ",
        "*a",
        "<<: *a",
        "!!python/object:os.system",
        "!x ",
        "? ",
        "| ",
        "> ",
    ),
    *(
        "'",
        '"',
        "\t",
        "\x00",
        "\x07",
        "\ufeff",
        "\u2028",
        "\r\n",
        "---\n",
        "...\n",
        "%YAML 1.1\n",
        "{{x}}",
        "${x}",
        "@",
        "`",
        "%",
    ),
    *(
        "targets:\n",
        "targets: 3\n",
        "samplers: [ARR]\n",
        "html: 5\n",
        "sampling:\n",
        "class: Random",
        "\U0001f600",
        "é" * 50,
        "\\x",
    ),
)


def broken(source: bytes, chance: random.Random) -> bytes:
    """A file with between one and six accidents: bytes lost, lines moved, debris dropped somewhere."""
    for _ in range(chance.randint(1, 6)):
        lines = source.split(b"\n")
        at = chance.randrange(len(source) + 1)
        row = chance.randrange(len(lines))
        match chance.randrange(8):
            case 0:
                source = source[:at] + source[at + chance.randint(1, 30) :]
            case 1:
                source = source[:at] + bytes([chance.randrange(256)]) + source[at + 1 :]
            case 2:
                source = b"\n".join([*lines[:row], *lines[row + 1 :]])
            case 3:
                source = b"\n".join([*lines[:row], lines[row], *lines[row:]])
            case 4:
                source = b"\n".join(
                    [*lines[:row], chance.choice([b"  ", b"\t", b" ", b"- "]) + lines[row], *lines[row + 1 :]]
                )
            case 5:
                key, colon, _rest = lines[row].partition(b":")
                lines[row] = key + colon + b" " + chance.choice(_DEBRIS).encode()
                source = b"\n".join(lines)
            case _:
                source = source[:at] + chance.choice(_DEBRIS).encode() + source[at:]
    return source
