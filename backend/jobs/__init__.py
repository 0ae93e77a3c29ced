"""The console's requests to the learning process, carried out on the workers behind the live work."""

from backend.jobs.runner import Jobs

__all__ = ["Jobs"]
