"""The command `fw`, also as `python -m fw_cli`; without its libraries it says what to install."""

from __future__ import annotations

import sys

from fw_cli.extras import advice


def main() -> None:
    """Run the command line. The runtime alone brings none of the libraries that it needs."""
    try:
        from fw_cli.main import main as run

        run()
    except ModuleNotFoundError as error:
        text = advice(error)
        if text is None:
            raise
        sys.exit(f"fw: {text}")


if __name__ == "__main__":
    main()
