"""The command line: `salmon` and `python -m salmon`."""
