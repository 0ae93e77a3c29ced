"""Write what is made from the code: the types of the pages' JavaScript, the bodies in docs/routes.md, and the pages of
keys, commands and Python names.

Run `make generated` after a change of a route, a body, a reply or a key of the spec; with `--check` nothing is written,
and files that are out of date are named. A test does the same.
"""  # noqa: INP001

import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from frontend.app import create_app
from frontend.console import pages
from frontend.participant.page_content import ParticipantSetting
from frontend.schemas import AnswerBody, EventBody
from frontend.settings import Settings
from salmon.jobs import FitResult
from salmon.spec import spec_schema

sys.path.append(str(Path(__file__).parent))  # a test loads this file by its path
import reference

REPOSITORY = Path(__file__).resolve().parent.parent
TYPES = REPOSITORY / "frontend" / "static" / "types.d.ts"
ROUTES = REPOSITORY / "docs" / "routes.md"
KEYS = REPOSITORY / "docs" / "keys.md"
COMMANDS = REPOSITORY / "docs" / "commands.md"
NAMES = REPOSITORY / "docs" / "python.md"
#: What pages begin with and what jobs return stands in no route, so it is not in the OpenAPI document.
BESIDE_ROUTES = (
    ParticipantSetting,
    pages.LaunchData,
    pages.PeopleData,
    pages.PrivacyData,
    pages.OverviewData,
    pages.MapData,
    pages.TargetsData,
    pages.ParticipantsData,
    pages.ExportsData,
    pages.AnalysisData,
    pages.SettingsData,
    FitResult,
    AnswerBody,
    EventBody,
)
METHODS = ("get", "post", "put", "delete")
HEAD = """\
// Written by .ci/generate.py from the routes and replies of the server: do not change it by hand, run `make generated`.

type Split<P extends string> = P extends `${infer Head}/${infer Tail}` ? [Head, ...Split<Tail>] : [P];
type WithoutQuery<P extends string> = P extends `${infer Address}?${string}` ? Address : P;
/** A part of an address that is known only when the program runs stands for a parameter of the route. */
type Part<S extends string> = string extends S ? "{}" : S extends `${number}` ? "{}" : S;
type Join<T extends string[]> = T extends [infer Head extends string, ...infer Tail extends string[]]
  ? Tail extends [] ? Part<Head> : `${Part<Head>}/${Join<Tail>}`
  : "";
type Route<M extends string, P extends string> = `${M} ${Join<Split<WithoutQuery<P>>>}`;

/** The reply of a route; `never` where there is no such route. */
export type Reply<M extends string, P extends string> = Route<M, P> extends infer R extends keyof Replies ? Replies[R] : never;
/** The body that a route takes; FormData for uploads. */
export type Body<M extends string, P extends string> = Route<M, P> extends infer R extends keyof Bodies ? Bodies[R] : undefined;
"""


def main(arguments: list[str]) -> int:
    """Write the files, or with `--check` name those that are out of date; return the exit status."""
    texts = generated()
    old = [path for path, text in texts.items() if not path.exists() or path.read_text() != text]
    if arguments == ["--check"]:
        for path in old:
            sys.stdout.write(f"{path.relative_to(REPOSITORY)} is out of date: run make generated\n")
        return 1 if old else 0
    for path in old:
        path.write_text(texts[path])
        sys.stdout.write(f"{path.relative_to(REPOSITORY)} written\n")
    return 0


def generated() -> dict[Path, str]:
    """Return the text of every file that is made from the code."""
    app = create_app(Settings(redis_url="redis://localhost:1", secret="0" * 16))
    document = app.openapi()
    return {
        TYPES: types_of(document),
        ROUTES: with_bodies(ROUTES.read_text(), document),
        KEYS: keys(),
        COMMANDS: reference.commands(MARK),
        NAMES: reference.names(MARK),
    }


def types_of(document: Mapping[str, Any]) -> str:
    """Return the TypeScript declarations of all replies, bodies and data of pages."""
    _, beside = TypeAdapter.json_schemas(
        [(each, "serialization", TypeAdapter(each)) for each in BESIDE_ROUTES],
        ref_template="#/components/schemas/{model}",
    )
    schemas = {**document["components"]["schemas"], **beside["$defs"]}
    known = [
        f"{_documented(schema)}export {_declared(name, schema)}"
        for name, schema in sorted(schemas.items())
        if not name.startswith("Body_")
    ]
    replies_of, bodies_of = ["export interface Replies {"], ["export interface Bodies {"]
    for route, operation in _operations(document):
        reply = next((_content(found) for status, found in operation["responses"].items() if status < "300"), None)
        if reply:
            replies_of.append(f'  "{route}": {_type(reply)};')
        if body := operation.get("requestBody"):
            is_form = "multipart/form-data" in body["content"]
            bodies_of.append(f'  "{route}": {"FormData" if is_form else _type(_content(body))};')
    return "\n".join((HEAD, *known, *replies_of, "}", "", *bodies_of, "}", ""))


def _operations(document: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each route as `GET /api/experiments/{}`, with its description."""
    for path, operations in sorted(document["paths"].items()):
        for method in METHODS:
            if method in operations:
                yield f"{method.upper()} {re.sub(r'{[^}]*}', '{}', path)}", operations[method]


def _content(described: Mapping[str, Any]) -> dict[str, Any]:
    return described.get("content", {}).get("application/json", {}).get("schema", {})


def _documented(schema: Mapping[str, Any]) -> str:
    text = " ".join(schema.get("description", "").split())
    return f"/** {text} */\n" if text else ""


def _declared(name: str, schema: Mapping[str, Any]) -> str:
    if schema.get("type") != "object" or "properties" not in schema:
        return f"type {name} = {_type(schema)};\n"
    required = set(schema.get("required", ()))
    # A default fills in what a body leaves out; dataclasses among the replies always have all their fields.
    lines = [
        f"  {_key(key)}{'' if key in required or (not _is_body(schema) and 'default' in value) else '?'}: {_type(value)};"
        for key, value in schema["properties"].items()
    ]
    return "\n".join((f"interface {name} {{", *lines, "}\n"))


def _is_body(schema: Mapping[str, Any]) -> bool:
    return schema.get("additionalProperties") is False


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z_]\w*", key) else f'"{key}"'


#: JSON schema -> TypeScript.
_PLAIN = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}


def _type(schema: Mapping[str, Any]) -> str:
    """Return the TypeScript type of a JSON schema."""
    kind = schema.get("type", "")
    if "$ref" in schema:
        written = schema["$ref"].rpartition("/")[2]
    elif fixed := schema.get("enum", [schema["const"]] if "const" in schema else []):
        written = " | ".join(map(_literal, fixed))
    elif choices := schema.get("anyOf") or schema.get("oneOf"):
        written = " | ".join(dict.fromkeys(map(_type, choices)))
    elif kind == "array":
        item = _type(schema.get("items", {}))
        parts = ", ".join(map(_type, schema.get("prefixItems", ())))
        written = f"[{parts}]" if parts else f"({item})[]" if " " in item else f"{item}[]"
    elif kind == "object":
        values = schema.get("additionalProperties")
        parts = "; ".join(f"{_key(name)}: {_type(value)}" for name, value in schema.get("properties", {}).items())
        written = (
            f"{{ {parts} }}" if parts else f"Record<string, {_type(values) if isinstance(values, dict) else 'any'}>"
        )
    else:
        written = _PLAIN.get(kind, "any")
    return written


def _literal(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value).lower()


MARK = "<!-- written by .ci/generate.py: run `make generated` after a change -->"
ABOUT_BODIES = """
## Bodies of requests

What is sent with POST, PUT and DELETE: JSON, or a form (`multipart/form-data`) where files go with it. Keys that are not
named here are refused.
"""


def with_bodies(manual: str, document: Mapping[str, Any]) -> str:
    """Return docs/routes.md with the section of all bodies as they are now."""
    before, _, _ = manual.partition(f"{MARK}\n")
    return "\n".join((before.rstrip("\n"), "", MARK, ABOUT_BODIES, *_bodies(document)))


def _bodies(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield the section of each body: the routes that take it, and a table of its keys."""
    schemas = document["components"]["schemas"]
    taken: dict[str, tuple[dict[str, Any], list[str]]] = {}
    for path, operations in sorted(document["paths"].items()):
        for method in METHODS:
            if body := operations.get(method, {}).get("requestBody"):
                (kind, content), *_ = body["content"].items()
                schema = _resolved(content["schema"], schemas)
                choices = [_resolved(choice, schemas) for choice in schema.get("anyOf", ())]
                item = next((choice for choice in choices if choice.get("properties")), schema)
                many = " (one, or a list of them)" if len(choices) > 1 and choices[1].get("type") == "array" else ""
                name = item["title"] if not item["title"].startswith("Body_") else f"{method} {path}"
                form = " as a form" if kind != "application/json" else ""
                taken.setdefault(name, (item, []))[1].append(f"`{method.upper()} {path}`{form}{many}")
    for item, routes in taken.values():
        about = " ".join(item.get("description", "").split())
        yield f"### {', '.join(dict.fromkeys(routes))}\n"
        if about:
            yield f"{about}\n"
        yield "| key | value | default |\n|---|---|---|"
        required = item.get("required", ())
        for key, value in item["properties"].items():
            default = "required" if key in required else _default(value)
            yield f"| `{key}` | {_in_words(value, schemas)} | {default} |"
        yield ""


def _resolved(schema: dict[str, Any], schemas: Mapping[str, Any]) -> dict[str, Any]:
    return schemas[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema


def _default(schema: Mapping[str, Any]) -> str:
    value = schema.get("default")
    return "" if value in (None, "", [], {}) else f"`{_literal(value)}`"


#: Words for the bounds of JSON schema.
_BOUNDS = {
    "minimum": "at least {}",
    "exclusiveMinimum": "above {}",
    "maximum": "at most {}",
    "exclusiveMaximum": "below {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
    "maxProperties": "at most {} keys",
}


def _in_words(schema: dict[str, Any], schemas: Mapping[str, Any]) -> str:
    """Return the type and the bounds of a value in words."""
    schema = _resolved(schema, schemas)
    if choices := schema.get("anyOf"):
        return " or ".join(_in_words(choice, schemas) for choice in choices)
    if "enum" in schema:
        return ", ".join(f"`{_literal(each)}`" for each in schema["enum"])
    kind = {"integer": "whole number", "boolean": "true or false", "null": "null"}.get(
        schema.get("type", ""), schema.get("type", "any value")
    )
    if schema.get("format") == "binary" or schema.get("contentMediaType"):
        kind = "file"
    if "prefixItems" in schema:
        kind = f"[{'; '.join(_in_words(item, schemas) for item in schema['prefixItems'])}]"
    elif schema.get("type") == "array":
        kind = f"list of ({_in_words(schema['items'], schemas)})"
    elif "properties" in schema:
        inner = "; ".join(f"`{key}`: {_in_words(value, schemas)}" for key, value in schema["properties"].items())
        kind = f"object with {inner}"
    elif isinstance(values := schema.get("additionalProperties"), dict):
        kind = f"object of ({_in_words(values, schemas)})"
    hidden = {"minItems", "maxItems"} if "prefixItems" in schema else set[str]()
    bounds = [
        _BOUNDS[name].format(f"{schema[name]:,g}" if schema[name] < 1000 else f"{schema[name]:,.0f}")
        for name in _BOUNDS
        if name in schema and name not in hidden
    ]
    pattern = [f"matches `{schema['pattern']}`".replace("|", "\\|")] if "pattern" in schema else []
    return ", ".join((kind, *bounds, *pattern))


ABOUT_KEYS = """\
# Keys of an experiment's file

Every key that a file may have, with its kind, its default and what it means. The [participant page](participants.md) and the
[examples](../examples/README.md) show how they are used together; `salmon check` and the editor say what is wrong with a file.
Items of a list are written as `key[]`, values of named things as `key.<name>`.

"""


def keys() -> str:
    """Return docs/keys.md: every key of the spec with what it means."""
    schema = spec_schema()
    lines: list[str] = [f"{MARK}\n", ABOUT_KEYS.rstrip("\n")]
    alone = {name: value for name, value in schema["properties"].items() if not list(_keys_below(name, value))}
    for title, content in (("Keys without others below them", alone), *_sections(schema, alone)):
        lines += ["", f"## {title}", "", "| key | kind | default | what |", "|---|---|---|---|"]
        for path, value in content.items():
            default = f"`{_yaml(value['default'])}`" if "default" in value else ""
            lines.append(f"| `{path}` | {_kind_of(value)} | {default} | {value.get('description', '')} |")
    return "\n".join(lines) + "\n"


def _sections(schema: Mapping[str, Any], alone: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, value in schema["properties"].items():
        if name not in alone:
            yield name, {name: value, **dict(_keys_below(name, value))}


def _keys_below(path: str, schema: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every key below one, with its path."""
    if isinstance(items := schema.get("items"), dict):
        yield from _keys_below(f"{path}[]", items)
    if isinstance(named := schema.get("additionalProperties"), dict):
        yield from _keys_below(f"{path}.<name>", named)
        if named.get("properties"):
            return  # samplers that are called as their class have the same arguments
    for name, value in schema.get("properties", {}).items():
        yield f"{path}.{name}", value
        yield from _keys_below(f"{path}.{name}", value)


def _kind_of(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return ", ".join(f"`{each}`" for each in schema["enum"])
    if schema.get("type") == "array":
        items = schema.get("items", {})
        return f"list of {_kind_of(items)}" if items.get("type") in {"string", "integer", "number"} else "list"
    words = {"object": "keys", "integer": "whole number", "string": "text", "boolean": "true or false"}
    return words.get(schema.get("type", ""), schema.get("type", ""))


def _yaml(value: object) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | bool) else str(value)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
