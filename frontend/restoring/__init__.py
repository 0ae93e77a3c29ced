"""Brings a bundle back: checks every byte of it, and makes a paused experiment of it, on any machine and later version.

A bundle comes from anywhere. Nothing in it is believed before it was checked, nothing of it is carried out, no more of
it is in memory than a page, and no experiment is to be seen before all of it is there.
"""
