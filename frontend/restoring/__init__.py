"""Brings experiments in: bundles bit for bit, and answers that another program recorded as far as they go.

A file comes from anywhere. Nothing in it is believed before it was checked, nothing of it is carried out, no more of
it is in memory than a page, and no experiment is to be seen before all of it is there.
"""
