"""Files of answers: every form in which Salmon's users keep them.

`read_answers` takes a table into memory as the columns that a fit needs. `rows_of` and `recorded` read one of any
length row by row, with everything it says, for an experiment to be made of it; `read_backup` does so with a backup of
the first Salmon. Known forms are our own and the old program's responses (CSV, JSON or JSON lines, with all its
historical column names), rows of head, winner, loser with or without a header, and the tables of R scripts that name
stimuli by labels (Center, Left, Right, Answer), plain or compressed. Whatever cannot be read ends in sentences.
"""

from salmon.answer_files.answers import AnswersFileError, AnswerTable, read_answers, read_bytes
from salmon.answer_files.tables import ContainerError

__all__ = ["AnswerTable", "AnswersFileError", "ContainerError", "read_answers", "read_bytes"]
