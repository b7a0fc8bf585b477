"""`python -m reconciler`: the command line, for where no console script is on PATH."""

from reconciler.cli.main import main

main()
