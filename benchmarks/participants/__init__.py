"""Simulated participants against the running program: latencies, fallbacks, how soon an
answer is heard, what it costs.
"""
