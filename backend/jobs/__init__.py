"""The console's requests to the learning process, carried out on the workers behind the live work."""

from backend.jobs.runner import JobRunner

__all__ = ["JobRunner"]
