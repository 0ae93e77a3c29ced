"""What leaves the system: the rows and files of every export. Pure: whoever has answers can write them."""

from salmon.export.files import FILES, MEDIA_TYPES, CsvFile, JsonFile, JsonLinesFile, ParquetFile, TableFile
from salmon.export.responses import (
    FIRST_COLUMNS,
    FIRST_RESPONSES,
    FURTHER_COLUMNS,
    LATE_MS,
    RESPONSE_COLUMNS,
    RESPONSES,
    Responses,
    RevisionNames,
    TargetNames,
    moment,
)
from salmon.export.table import Cell, Column, Row, Table

__all__ = [
    "FILES",
    "FIRST_COLUMNS",
    "FIRST_RESPONSES",
    "FURTHER_COLUMNS",
    "LATE_MS",
    "MEDIA_TYPES",
    "RESPONSES",
    "RESPONSE_COLUMNS",
    "Cell",
    "Column",
    "CsvFile",
    "JsonFile",
    "JsonLinesFile",
    "ParquetFile",
    "Responses",
    "RevisionNames",
    "Row",
    "Table",
    "TableFile",
    "TargetNames",
    "moment",
]
