"""`fw demo`: the whole way of an event, live."""

from __future__ import annotations

import click


@click.command()
def demo() -> None:
    """Show the whole way of an event, live: service, sign-in, webhooks, retries.

    Makes a site in a temporary folder with a throw-away key, saves one document that two
    Webhooks watch, and shows how both receivers get it: one at once, one after retries.
    """
    from fw_cli.demo_story import show_demo

    show_demo()
