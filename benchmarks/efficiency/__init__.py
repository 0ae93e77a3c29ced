"""How many answers a sampler needs: paired simulations, a replay of people's answers, and the old program's findings.

Run `python -m benchmarks.efficiency --help`. The protocol is written down in docs/efficiency.md.
"""
