"""Judge how carefully each participant has answered: figures, flags with reasons, and a proposal whom to keep.

Nothing here decides about payment. A flag is a sentence for the experimenter; `keep` is a proposal that the
experimenter can overrule for every participant, and nothing is ever deleted.
"""

from salmon.quality.figures import Evidence, Figures, is_caught
from salmon.quality.verdict import Decision, Flag, Verdict, judge

__all__ = ["Decision", "Evidence", "Figures", "Flag", "Verdict", "is_caught", "judge"]
