"""`python -m preferl`."""

from preferl.cli.main import main

if __name__ == "__main__":
    main()
