"""A button that is pressed again while the page that follows is on its way."""

from __future__ import annotations

from playwright.sync_api import ConsoleMessage, Page, Route

PRESS_AGAIN_ON_LEAVING = """
() => {
  const press = () => document.querySelector("BUTTON").click();
  const again = () => { press(); console.log("pressed again"); };
  addEventListener("beforeunload", () => setTimeout(again), { once: true });
  press();
}
"""


def press_twice(page: Page, button: str, following: str) -> None:
    """Press a button, and again while the page that follows, at `following`, is on its way."""
    held: list[Route] = []
    pressed: list[str] = []

    def go_on() -> None:
        if held and pressed:
            held.pop().continue_()

    def hold(route: Route) -> None:
        held.append(route)
        go_on()

    def take_note(said: ConsoleMessage) -> None:
        if said.text == "pressed again":
            pressed.append(said.text)
            go_on()

    page.route(following, hold)
    page.on("console", take_note)
    page.evaluate(PRESS_AGAIN_ON_LEAVING.replace("BUTTON", button))
