"""Tables of an export: their columns, their rows page by page, and the files made of them."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from functools import partial
from itertools import islice

from frontend.errors import ConflictError
from frontend.transfer.participant_tables import (
    PLATFORM_IDS,
    QUALITY,
    Conduct,
    participant_row,
    participants_table,
    platform_row,
    quality_row,
)
from frontend.transfer.source import ExportSource
from salmon.export import FILES, FIRST_RESPONSES, RESPONSES, Responses, Row, Table
from salmon.export.other_programs import (
    CBLEARN,
    PSIZ,
    STACKS,
    TRIPLETTOOLS_TRIPLETS,
    Labels,
    Translator,
    triplettools_embedding_rows,
    triplettools_embeddings_table,
)
from salmon.export.table import NpzFile
from salmon.export.targets_models import (
    EVENTS,
    MODELS,
    TARGETS,
    Generation,
    embedding_history_rows,
    embedding_history_table,
    embedding_rows,
    embeddings_table,
    event_row,
    first_embeddings_table,
    model_row,
    target_rows,
)
from salmon.records import Answer
from salmon.wire.answer_pages import AnswerColumns

Pages = AsyncIterator[list[Row]]
#: Rows of a page, where they do not come from pages of the store.
_ROWS = 1000


async def pages_of(source: ExportSource, name: str) -> tuple[Table, Pages]:
    """Return a table and its rows; ConflictError where it cannot be made."""
    return await _MAKERS[name](source)


async def table_pieces(source: ExportSource, name: str, extension: str) -> AsyncIterator[bytes]:
    """Yield the bytes of a table as a file."""
    table, pages = await pages_of(source, name)
    file = FILES[extension](table)
    yield file.begin()
    async for rows in pages:
        yield file.rows(rows)
    yield file.end()


async def table_arrays(source: ExportSource, name: str) -> bytes:
    """Return a table as an .npz file, for programs that read arrays."""
    table, pages = await pages_of(source, name)
    file = NpzFile(table, STACKS[table.name], [target.filename for target in source.targets])
    async for rows in pages:
        file.rows(rows)
    return file.end()


async def table_of(source: ExportSource, name: str) -> Table:
    """Return the columns of a table, without its rows."""
    d = await source.dimensions()
    made = {
        "participants": lambda: participants_table(source.questions),
        "embeddings": lambda: embeddings_table(d),
        "salmon_embeddings": lambda: first_embeddings_table(d),
        "embedding_history": lambda: embedding_history_table(d),
        "triplettools_embeddings": lambda: triplettools_embeddings_table(d),
    }
    return made[name]() if name in made else _FIXED[name]


async def embeddings_of(source: ExportSource) -> list[Generation]:
    """Return the embedding of each sampler: the newest, or that of the generation asked for."""
    order = source.order
    found = [generation for sampler in source.samplers if (generation := await source.newest(sampler))]
    if order.generation:
        kept: set[int] = set()
        chosen: list[Generation] = []
        for sampler in source.samplers:
            async for generation in source.generations(sampler):
                if generation.coordinates is not None:
                    kept.add(generation.number)
                    if generation.number == order.generation:
                        chosen.append(generation)
        if not chosen:
            numbers = ", ".join(str(number) for number in sorted(kept)) or "none yet"
            raise ConflictError(
                f"The coordinates of generation {order.generation} were not kept.",
                hint=f"Kept are {numbers}.",
                where="generation",
            )
        return chosen
    if not found and order.name != "bundle":
        raise ConflictError(
            "There is no embedding yet.",
            hint="It appears once an active sampler has answers; random and validation samplers have no embedding.",
            where=order.sampler or "embeddings",
        )
    return found


async def _responses(source: ExportSource) -> tuple[Table, Pages]:
    excluded = await source.excluded()
    made = Responses(
        targets=source.targets,
        started_ms=source.experiment.state.opened_ms,
        puids=await source.puids(),
        excluded=excluded,
        revisions=await source.revisions(),
    )

    async def pages() -> Pages:
        async for columns in _read_wanted(source, excluded):
            yield made.rows(columns)

    return RESPONSES, pages()


async def _first_responses(source: ExportSource) -> tuple[Table, Pages]:
    return FIRST_RESPONSES, _narrow_rows(FIRST_RESPONSES, (await _responses(source))[1])


async def _participants(source: ExportSource) -> tuple[Table, Pages]:
    decisions, conduct = await source.decisions(), await source.conduct()
    people, questions = await source.people(), source.questions
    first: dict[tuple[str, str], str] = {}
    duplicates: dict[str, str] = {}
    for name, person in people.items():
        identity = person.source, person.puid
        if first.setdefault(identity, name) != name:
            duplicates[name] = first[identity]
    rows = (
        participant_row(
            person,
            conduct=conduct.get(name, Conduct()),
            decision=decisions[name],
            duplicate_of=duplicates.get(name, ""),
            questions=questions,
        )
        for name, person in people.items()
        if decisions[name].keep or source.order.excluded == "mark"
    )
    return participants_table(questions), _split_pages(rows)


async def _platform_ids(source: ExportSource) -> tuple[Table, Pages]:
    people = await source.people()
    return PLATFORM_IDS, _split_pages(platform_row(person) for person in people.values())


async def _quality(source: ExportSource) -> tuple[Table, Pages]:
    decisions, verdicts = await source.decisions(), (await source.quality()).verdicts
    rows = (
        quality_row(name, verdicts[name], decision)
        for name, decision in decisions.items()
        if name in verdicts and (decision.keep or source.order.excluded == "mark")
    )
    return QUALITY, _split_pages(rows)


async def _events(source: ExportSource) -> tuple[Table, Pages]:
    async def pages() -> Pages:
        async for page in source.export_reader.read_events(source.experiment.id):
            yield [event_row(stream_id, entry) for stream_id, entry in page]

    return EVENTS, pages()


async def _targets(source: ExportSource) -> tuple[Table, Pages]:
    return TARGETS, _split_pages(target_rows(source.experiment.targets, source.experiment.manifest))


async def _models(source: ExportSource) -> tuple[Table, Pages]:
    async def pages() -> Pages:
        for sampler in source.samplers:
            rows: list[Row] = []
            async for generation in source.generations(sampler):
                rows.append(model_row(generation, kept=generation.coordinates is not None))
                if len(rows) == _ROWS:
                    yield rows
                    rows = []
            yield rows

    return MODELS, pages()


async def _embeddings(source: ExportSource) -> tuple[Table, Pages]:
    found = await embeddings_of(source)
    d = await source.dimensions()
    return embeddings_table(d), _split_pages(
        row for generation in found for row in embedding_rows(generation, source.targets, d)
    )


async def _first_embeddings(source: ExportSource) -> tuple[Table, Pages]:
    table = first_embeddings_table(await source.dimensions())
    return table, _narrow_rows(table, (await _embeddings(source))[1])


async def _embedding_history(source: ExportSource) -> tuple[Table, Pages]:
    d = await source.dimensions()

    async def pages() -> Pages:
        for sampler in source.samplers:
            async for generation in source.generations(sampler):
                yield list(embedding_history_rows(generation, source.targets, d))

    return embedding_history_table(d), pages()


async def _triplettools_embeddings(source: ExportSource) -> tuple[Table, Pages]:
    found, labels = await embeddings_of(source), Labels.of(source.targets)
    d = await source.dimensions()
    rows = (row for generation in found for row in triplettools_embedding_rows(generation, labels, d))
    return triplettools_embeddings_table(d), _split_pages(rows)


async def _read_wanted(source: ExportSource, excluded: Iterable[str]) -> AsyncIterator[AnswerColumns]:
    """Yield pages of the answers that are in a file, by the filters of the order."""
    sampler = source.order.sampler
    without = frozenset(excluded) if source.order.excluded == "leave_out" else frozenset[str]()
    async for columns in source.export_reader.read_columns(source.experiment.id, until=source.until):
        if not sampler and not without:
            yield columns
            continue
        given = zip(columns.column("participant"), columns.column("sampler"), strict=True)
        yield columns.keep([person not in without and sampler in {"", chosen} for person, chosen in given])


async def _narrow_rows(table: Table, pages: Pages) -> Pages:
    """Return the rows of a wider table that begins with the columns of this one."""
    width = len(table.columns)
    async for page in pages:
        yield [row[:width] for row in page]


async def _split_pages(rows: Iterable[Row]) -> Pages:
    left = iter(rows)
    while page := list(islice(left, _ROWS)):
        yield page


async def _translate_answers(
    table: Table, translate: Callable[[Translator, Answer], Row | None], source: ExportSource
) -> tuple[Table, Pages]:
    """Return a table of another program and its rows; answers that mean nothing to it have none."""
    excluded = await source.excluded()
    translator = Translator(
        labels=Labels.of(source.targets),
        puids=await source.puids(),
        excluded=excluded,
        tests=frozenset(name for name, sampler in source.experiment.spec.samplers.items() if sampler.test),
    )

    async def pages() -> Pages:
        async for columns in _read_wanted(source, excluded):
            yield [row for answer in columns.answers() if (row := translate(translator, answer)) is not None]

    return table, pages()


_MAKERS: dict[str, Callable[[ExportSource], Awaitable[tuple[Table, Pages]]]] = {
    "responses": _responses,
    "salmon_responses": _first_responses,
    "participants": _participants,
    "platform_ids": _platform_ids,
    "quality": _quality,
    "events": _events,
    "targets": _targets,
    "models": _models,
    "embeddings": _embeddings,
    "salmon_embeddings": _first_embeddings,
    "embedding_history": _embedding_history,
    "triplettools_triplets": partial(_translate_answers, TRIPLETTOOLS_TRIPLETS, Translator.triplettools),
    "triplettools_embeddings": _triplettools_embeddings,
    "cblearn": partial(_translate_answers, CBLEARN, Translator.cblearn),
    "psiz": partial(_translate_answers, PSIZ, Translator.psiz),
}


_FIXED: dict[str, Table] = {
    table.name: table
    for table in (
        RESPONSES,
        FIRST_RESPONSES,
        PLATFORM_IDS,
        QUALITY,
        EVENTS,
        TARGETS,
        MODELS,
        TRIPLETTOOLS_TRIPLETS,
        CBLEARN,
        PSIZ,
    )
}
