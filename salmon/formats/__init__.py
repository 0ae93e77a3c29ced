"""Files of answers: every form in which Salmon's users keep them, read into the same columns.

Known forms are our own and the old program's responses (CSV, JSON or JSON lines, with all its historical column
names), rows of head, winner, loser with or without a header, and the tables of R scripts that name stimuli by labels
(Center, Left, Right, Answer), plain or compressed. Reading is pure: text goes in, columns or a list of problems come out.
"""

from salmon.formats.answers import AnswersFileError, AnswerTable, read_answers, read_bytes

__all__ = ["AnswerTable", "AnswersFileError", "read_answers", "read_bytes"]
