"""Find the most informative queries among all: information gain, uncertainty, and I-optimal design."""

from salmon.search.information import information_gain
from salmon.search.ranking import Ranked, exact_search, uncertain_search

__all__ = ["Ranked", "exact_search", "information_gain", "uncertain_search"]
