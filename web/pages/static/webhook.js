// A webhook's test event, sent at once, with how long each part took; and its pause.

import { operation } from "./api.js";
import { flashNext } from "./app.js";
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
const pause = document.getElementById("webhook-pause");

// Pause or resume, and show the page as it is then.
function onPause(id, text, work) {
  const button = document.getElementById(id);
  button?.addEventListener("click", () => {
    clear(pause);
    busy(button, async () => {
      await work(pause.dataset.webhook);
      flashNext(text);
      location.reload();
    }).catch((error) => say(pause, error.message));
  });
}

onPause("pause-webhook", "Paused.", (webhook) => {
  const seconds = Number(document.getElementById("pause-seconds").value) || null;
  return operation("webhooks.pause", { webhook, seconds });
});
onPause("resume-webhook", "Resumed.", (webhook) => operation("webhooks.resume", { webhook }));
enable("webhook");
