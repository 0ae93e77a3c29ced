"""Run the command line: `python -m salmon` is the same as `salmon`."""

from salmon.cli.main import main

if __name__ == "__main__":
    main()
