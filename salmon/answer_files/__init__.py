"""Read files of answers in every form in which Salmon's users keep them.

Readable are Salmon's own responses and those of the first Salmon (CSV, JSON or JSON lines, with all the column names
that it has used), rows of head, winner and loser with or without a header, and tables of R scripts that name stimuli by
labels (Center, Left, Right, Answer), plain or compressed. `rows` reads and checks the rows of any of them; `answers`
makes columns in memory of them for a fit, and `recorded` reads files of any length for an import. `salmon1_backup`
reads backups of the first Salmon.
"""

from salmon.answer_files.answer_table import AnswerTable, read_answers, read_bytes
from salmon.answer_files.rows import AnswersFileError, ContainerError

__all__ = ["AnswerTable", "AnswersFileError", "ContainerError", "read_answers", "read_bytes"]
