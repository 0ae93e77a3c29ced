"""The web process's access to Redis: verbs, never commands.

When Redis is away, every verb raises StoreError: participants' pages keep their answers and try again, experimenters
read an error that says so. Nothing is half-written: what belongs together is one script or one transaction.
"""

from frontend.store.accounts import Accounts
from frontend.store.answers import Answers
from frontend.store.connection import Connection
from frontend.store.drafts import Drafts
from frontend.store.experiments import Experiments
from frontend.store.export_reader import ExportReader
from frontend.store.importing import Importer
from frontend.store.jobs import JobRequests
from frontend.store.models import Models
from frontend.store.participants import Participants
from frontend.store.people import People
from frontend.store.prolific import ProlificStudies
from frontend.store.sessions import Guesses, Sessions
from frontend.store.turns import Turns

__all__ = ["Store"]


class Store:
    """All verbs, grouped by what they are about."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.accounts = Accounts(connection)
        self.sessions = Sessions(connection)
        self.guesses = Guesses(connection)
        self.experiments = Experiments(connection)
        self.drafts = Drafts(connection)
        self.participants = Participants(connection)
        self.turns = Turns(connection)
        self.answers = Answers(connection)
        self.people = People(connection)
        self.prolific = ProlificStudies(connection)
        self.models = Models(connection)
        self.jobs = JobRequests(connection)
        self.export_reader = ExportReader(connection)
        self.importer = Importer(connection)

    @staticmethod
    def open(url: str, *, copies: int = 1) -> "Store":
        """Return a store on the Redis at this address, which connects when the first verb is used.

        An answer is on the disks of so many `copies` before it is confirmed: of the store, and of its replicas.
        """
        return Store(Connection(url, copies=copies))

    async def close(self) -> None:
        """Give all connections back."""
        await self.connection.close()
