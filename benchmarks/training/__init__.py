"""Benchmarks of training over many workers: each `python -m benchmarks.training.<name>`
writes figures to docs/training.
"""
