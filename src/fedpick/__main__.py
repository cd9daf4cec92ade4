"""`python -m fedpick`: the command line."""

from fedpick.cli import main

__all__: list[str] = []

if __name__ == "__main__":
    main()
