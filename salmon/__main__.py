"""`python -m salmon` is the same as `salmon`."""

from salmon.cli import main

if __name__ == "__main__":
    main()
