// A Webhook's test event with the duration of each step, its pause, and the rotation of its secret.

import { operation } from "./api.js";
import { ask, copy, flash } from "./app.js";
import { busy, clear, enable, onShownVersion, showMessage } from "./forms.js";

const STEPS = [["dns", "DNS"], ["connect", "Connect"], ["tls", "TLS"], ["answer", "Response"]];

const section = document.getElementById("webhook-test");
const result = section.querySelector("[data-result]");
const button = document.getElementById("send-test");

function showResult({ status, error, times }) {
  const message = document.createElement("p");
  message.className = error ? "message" : "message good";
  message.textContent = error || `The receiver answered ${status}.`;
  const list = document.createElement("dl");
  list.className = "times";
  for (const [key, label] of STEPS) {
    const value = times?.[key];
    if (!value) continue; // there was no such step
    const pair = document.createElement("div");
    const name = document.createElement("dt");
    name.textContent = label;
    const time = document.createElement("dd");
    time.textContent = `${Math.round(value * 10) / 10} ms`;
    pair.append(name, time);
    list.append(pair);
  }
  result.replaceChildren(message, list);
  result.hidden = false;
}

button.addEventListener("click", () => {
  clear(section);
  result.hidden = true;
  busy(button, async () => showResult(await operation("webhooks.test", { webhook: section.dataset.webhook })))
    .catch((error) => showMessage(section, error.message));
});

const pause = () => document.getElementById("webhook-pause");
const PAUSING = {
  "pause-webhook": {
    done: "Paused.",
    work: (webhook) => operation("webhooks.pause", { webhook, seconds: Number(document.getElementById("pause-seconds").value) || null }),
  },
  "resume-webhook": { done: "Resumed.", work: (webhook) => operation("webhooks.resume", { webhook }) },
};

// Show the pause that is stored now; typed values in the form stay. One request at a time, because
// htmx delays a second one and resolves its promise at once.
let lastReload = Promise.resolve();
let isWaiting = false; // the last one has not begun
function reloadPause() {
  if (isWaiting) return lastReload;
  isWaiting = true;
  lastReload = lastReload.then(replacePause);
  return lastReload;
}

async function replacePause() {
  isWaiting = false;
  const parts = { target: "#webhook-pause", select: "#webhook-pause", selectOOB: "#webhook-state", swap: "outerHTML" };
  await htmx.ajax("GET", location.pathname, parts).catch(() => {}); // app.js states the reason
}

// The state is reloaded periodically: it shows what another user has paused or resumed.
document.addEventListener("htmx:afterSwap", () => {
  enable("webhook");
  const isOutdated = document.getElementById("webhook-state").dataset.paused !== pause().dataset.paused;
  if (isOutdated && !pause().matches(":focus-within, :has([aria-busy])")) reloadPause();
});

document.querySelector("main").addEventListener("click", (event) => {
  const button = event.target.closest("#webhook-pause button");
  if (!button) return;
  const { done, work } = PAUSING[button.id];
  clear(pause());
  busy(button, async () => {
    await work(pause().dataset.webhook);
    flash(done);
    await reloadPause();
    if (document.activeElement === document.body) pause().querySelector("button").focus({ preventScroll: true }); // the other one is gone
  }).catch((error) => showMessage(pause(), error.message));
});

const form = document.getElementById("document");
const rotation = document.getElementById("webhook-rotate");
document.getElementById("rotate-secret")?.addEventListener("click", async () => {
  const overlap = document.getElementById("overlap");
  const hours = Number(overlap.value);
  let rotated;
  const answer = await ask({
    title: "Rotate the signing secret?",
    text: hours
      ? `A new secret signs from now on, and the old one beside it for ${overlap.selectedOptions[0].text}. By then the receiver must know the new one.`
      : "A new secret signs from now on. Deliveries that the receiver refuses until it knows the new one fail, and need a replay.",
    ok: "Rotate",
    danger: hours === 0,
    work: async () => {
      const body = { webhook: rotation.dataset.webhook, overlap: hours, modified: form.dataset.modified || undefined };
      rotated = await onShownVersion(() => operation("webhooks.rotate", body));
      form.dataset.modified = rotated.modified; // the form can still be saved
    },
  });
  if (answer === null) return;
  const secretText = rotation.querySelector("[data-text]");
  secretText.textContent = rotated.secret;
  rotation.querySelector("[data-rotated]").hidden = false;
  secretText.focus();
});
rotation?.querySelector("[data-copy-secret]").addEventListener("click", ({ target }) => copy(rotation.querySelector("[data-text]").textContent, target));
enable("webhook");
