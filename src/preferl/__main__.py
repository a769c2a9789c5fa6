"""`python -m preferl`, without the modules that lie in the current folder."""

import os
import sys

if __name__ == "__main__":
    here = ("", os.getcwd())  # noqa: PTH109 - pathlib would come from the folder, if it has one
    if not sys.flags.safe_path and sys.path and sys.path[0] in here:
        del sys.path[0]
    from preferl.cli.main import main

    main()
