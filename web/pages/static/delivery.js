// A delivery: sent again by a click; the line for curl copied.

import { operation } from "./api.js";
import { copy, flashNext } from "./app.js";
import { busy, enable, say } from "./forms.js";

// Delegated: the part with the buttons is exchanged while the delivery moves.
document.addEventListener("click", (event) => {
  const line = event.target.closest("[data-copy-curl]");
  if (line) copy(line.closest(".made").querySelector("[data-text]").textContent, line);
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
