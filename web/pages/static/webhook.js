// A webhook's test event: sent at once, and how long each part took.

import { operation } from "./api.js";
import { busy, clear, enable, say } from "./forms.js";

const STEPS = [["dns", "DNS"], ["connect", "Connect"], ["tls", "TLS"], ["answer", "Answer"]];

const section = document.getElementById("webhook-test");
const result = section.querySelector("[data-result]");
const button = document.getElementById("send-test");

function tell({ status, error, times }) {
  const said = document.createElement("p");
  said.className = error ? "message" : "message good";
  said.textContent = error || `The receiver answered ${status}.`;
  const list = document.createElement("dl");
  list.className = "times";
  for (const [key, label] of STEPS) {
    const value = times?.[key];
    if (value === null || value === undefined) continue;
    const pair = document.createElement("div");
    const name = document.createElement("dt");
    name.textContent = label;
    const time = document.createElement("dd");
    time.textContent = `${Math.round(value * 10) / 10} ms`;
    pair.append(name, time);
    list.append(pair);
  }
  result.replaceChildren(said, list);
  result.hidden = false;
}

button.addEventListener("click", () => {
  clear(section);
  result.hidden = true;
  busy(button, async () => tell(await operation("webhooks.test", { webhook: section.dataset.webhook })))
    .catch((error) => say(section, error.message));
});
enable("webhook");
