"""Presses a button a second time while the next page loads."""

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
    """Press a button, and again while the next page, at `following`, loads."""
    held: list[Route] = []
    pressed: list[str] = []

    def continue_if_pressed() -> None:
        if held and pressed:
            held.pop().continue_()

    def hold(route: Route) -> None:
        held.append(route)
        continue_if_pressed()

    def record_press(message: ConsoleMessage) -> None:
        if message.text == "pressed again":
            pressed.append(message.text)
            continue_if_pressed()

    page.route(following, hold)
    page.on("console", record_press)
    page.evaluate(PRESS_AGAIN_ON_LEAVING.replace("BUTTON", button))
