"""`python -m tracelyze`: the same command line as `tracelyze`."""

from tracelyze.cli import main

if __name__ == "__main__":
    main()
