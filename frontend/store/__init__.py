"""The web process's access to Redis: verbs, never commands.

When Redis is away, every verb raises StoreError: participants' pages keep their answers and try again, experimenters
read an error that says so. Nothing is half-written: what belongs together is one script or one transaction.
"""

from functools import cached_property

from frontend.store.accounts import Accounts
from frontend.store.answers import Answers
from frontend.store.connection import Connection
from frontend.store.experiments import Experiments
from frontend.store.export_reader import ExportReader
from frontend.store.importing import Importer
from frontend.store.jobs import JobRequests
from frontend.store.models import Models
from frontend.store.participants import Participants

__all__ = ["Store"]


class Store:
    """All verbs, grouped by what they are about."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    @cached_property
    def accounts(self) -> Accounts:
        """Accounts of experimenters."""
        return Accounts(self.connection)

    @cached_property
    def experiments(self) -> Experiments:
        """Experiments and their revisions."""
        return Experiments(self.connection)

    @cached_property
    def participants(self) -> Participants:
        """Participants and the queries they are given."""
        return Participants(self.connection)

    @cached_property
    def answers(self) -> Answers:
        """The log of answers."""
        return Answers(self.connection)

    @cached_property
    def models(self) -> Models:
        """What the learning process publishes."""
        return Models(self.connection)

    @cached_property
    def jobs(self) -> JobRequests:
        """Jobs for the learning process."""
        return JobRequests(self.connection)

    @cached_property
    def export_reader(self) -> ExportReader:
        """Everything of one experiment, for exports."""
        return ExportReader(self.connection)

    @cached_property
    def importer(self) -> Importer:
        """Writes what an import brings."""
        return Importer(self.connection)

    @staticmethod
    def open(url: str) -> "Store":
        """Return a store on the Redis at this address; it connects when the first verb is used."""
        return Store(Connection(url))

    async def close(self) -> None:
        """Give all connections back."""
        await self.connection.close()
