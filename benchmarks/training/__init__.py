"""What distributed training gains: each `python -m benchmarks.training.<name>` writes its figures to docs/training."""
