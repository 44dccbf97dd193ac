"""`python -m ops.cli` is `hookyard`."""

from ops.cli import main

main()
