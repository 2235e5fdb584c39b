// A delivery: replay, cancellation, erasure of the body after a confirmation, and copying of the curl command.

import { operation } from "./api.js";
import { ask, copy, flashNext } from "./app.js";
import { busy, enable, nextPage, showMessage } from "./forms.js";

// Delegated, because the part with the buttons is replaced while the delivery is in progress.
document.addEventListener("click", (event) => {
  const copyButton = event.target.closest("[data-copy-curl]");
  if (copyButton) copy(copyButton.closest(".made").querySelector("[data-text]").textContent, copyButton);
  if (event.target.closest("[data-erase]")) erase();
  if (event.target.closest("[data-cancel]")) cancel();
  const button = event.target.closest("[data-replay-one]");
  if (!button) return;
  const section = document.getElementById("delivery");
  busy(button, async () => {
    await operation("webhooks.replay", { delivery: section.dataset.delivery });
    flashNext("Queued again.");
    location.reload();
    await nextPage(); // until then the button waits: a second click would replay it twice
  }).catch((error) => showMessage(section, error.message));
});
async function cancel() {
  const { delivery } = document.getElementById("delivery").dataset;
  const answer = await ask({
    title: "Cancel the delivery?",
    text: "It becomes Failed, and nothing more is sent. It can be replayed later.",
    ok: "Cancel the delivery",
    cancel: "Keep it",
    danger: true,
    work: () => operation("webhooks.cancel", { delivery }),
  });
  if (answer === null) return;
  flashNext("Cancelled.");
  location.reload();
}
async function erase() {
  const { delivery } = document.getElementById("delivery").dataset;
  const answer = await ask({
    title: "Erase the body?",
    text: "The sent body and the receiver's answers are erased permanently, and it cannot be replayed any more; its record stays.",
    ok: "Erase",
    danger: true,
    work: () => operation("webhooks.erase", { delivery }),
  });
  if (answer === null) return;
  flashNext("Erased.");
  location.reload();
}

enable("delivery");
document.addEventListener("htmx:afterSwap", () => enable("delivery"));
