"""`fw demo`: an event from its start to its outcome, live."""

from __future__ import annotations

import click


@click.command()
def demo() -> None:
    """Show an event from its start to its outcome: service, sign-in, webhooks, retries.

    Creates a site in a temporary folder with a throw-away key, saves one document that two
    Webhooks subscribe to, and shows how both receivers get it: one at once, one after retries.
    """
    from fw_cli.demo_story import show_demo

    show_demo()
