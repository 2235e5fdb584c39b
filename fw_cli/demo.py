"""`fw demo`: an event from its start to its outcome, live."""

from __future__ import annotations

import click


@click.command()
@click.option(
    "--keep", is_flag=True, help="Leave the site running until Ctrl+C, and print how to sign in."
)
def demo(keep: bool) -> None:
    """Show an event from its start to its outcome: service, sign-in, webhooks, retries.

    Creates a site in a temporary folder with a throw-away key, saves one document that two
    Webhooks subscribe to, and shows how both receivers get it: one at once, one after retries. The
    site is deleted at the end.
    """
    from fw_cli.demo_story import show_demo

    show_demo(keep=keep)
