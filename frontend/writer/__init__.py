"""Writes what leaves the system, in a process of its own: `python -m frontend.writer ORDER`.

The web process starts it for each file, hands its output on as it comes, and ends it when nobody listens any more. So a
million rows cost the web process neither memory nor time.
"""
