// A delivery: sent again by a click.

import { operation } from "./api.js";
import { flashNext } from "./app.js";
import { busy, enable, say } from "./forms.js";

// Delegated: the part with the button is exchanged while the delivery moves.
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-replay-one]");
  if (!button) return;
  const section = document.getElementById("delivery");
  busy(button, async () => {
    await operation("webhooks.replay", { delivery: section.dataset.delivery });
    flashNext("Queued again.");
    location.reload();
  }).catch((error) => say(section, error.message));
});
enable("delivery");
document.addEventListener("htmx:afterSwap", () => enable("delivery"));
