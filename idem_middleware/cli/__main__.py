"""`python -m idem_middleware.cli`, where scripts are not on the path."""

from idem_middleware.cli import main

main()
