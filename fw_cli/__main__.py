"""`python -m fw_cli` runs the command `fw`."""

from fw_cli.main import main

if __name__ == "__main__":
    main()
