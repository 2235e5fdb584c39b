// The replay of all deliveries that match the list's filters: the service carries it out, this page
// begins it, shows its progress, and stops it. It continues when the page is left, and is shown again.

import { operation } from "./api.js";
import { ask, showProblem } from "./app.js";
import { busy, enable } from "./forms.js";
import { counted, number, sentence } from "./words.js";

const LOOK_MS = 1000;
const LOOK_AFTER_TROUBLE_MS = 5000;
const SHOWN_AFTER_MS = 3_600_000; // how long an ended run is shown
const CLOSED = "fw-replay-closed";

const panel = document.getElementById("run");
const part = (name) => panel.querySelector(`[data-${name}]`);
let watchedRun = null; // the id of the run that this page has seen under way

// `["status", "=", "Failed"]` is read as `Status Failed`, with the words of the filters on this page.
const BOUNDS = { ">=": "since", "<": "until" };
function conditionText([field, op, value = null]) {
  if (field === "creation" && op in BOUNDS) return `${BOUNDS[op]} ${new Date(value).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "long" })}`;
  const filter = document.getElementById(`filter-${field}`);
  const name = Array.isArray(field) ? "Any text" : filter?.labels[0].textContent ?? field.slice(0, 1).toUpperCase() + field.slice(1);
  if (op === "is null" || value === null) return `${name} is ${op !== "!=" && (value ?? true) ? "" : "not "}null`;
  if (field === "error" && op === "=") return `${name} "${sentence(value).replace(/\.$/, "")}"`;
  const chosen = [...filter?.options ?? []].find((option) => option.value === value);
  return `${name}${op === "=" ? "" : ` ${op}`} ${chosen?.textContent ?? value}`;
}
const filterText = (filters) => filters.map(conditionText).join(", ");

function resultText(run) {
  const how = { done: "Done.", stopped: "Stopped.", failed: `Ended early. ${run.error}` }[run.state];
  const refused = Object.entries(run.refused).map(([why, count]) => `${number.format(count)} not replayed: ${why}`);
  return [how, `${counted(run.replayed, "delivery is", "deliveries are")} queued again.`, ...refused].join(" ");
}

function showRun(run) {
  const live = run.state === "running";
  if (localStorage.getItem(CLOSED) === run.id) return; // also by a response that was late
  if (!live && watchedRun !== run.id && Date.now() - Date.parse(run.ended) > SHOWN_AFTER_MS) return;
  panel.hidden = false;
  part("what").textContent = `Replay of all with ${filterText(run.filters)}, started by ${run.user} ${new Date(run.begun).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "long" })}`;
  part("result").href = `/app/replays/${run.id}`;
  const total = Math.max(run.total, run.done, 1);
  panel.querySelector("progress").max = total;
  panel.querySelector("progress").value = live ? run.done : total;
  part("count").textContent = live ? `${number.format(run.done)} of ${number.format(total)}` : "";
  part("outcome").textContent = live ? "" : resultText(run);
  const stopped = document.activeElement === part("stop-run");
  part("stop-run").hidden = !live;
  part("close-run").hidden = live;
  if (stopped && !live) part("close-run").focus(); // the other one is gone
  part("close-run").onclick = () => {
    localStorage.setItem(CLOSED, run.id);
    panel.hidden = true;
    document.getElementById("main").focus({ preventScroll: true });
  };
  if (live) {
    watchedRun = run.id;
  } else if (watchedRun === run.id && !document.querySelector("#results .pick input:checked")) {
    htmx.ajax("GET", location.pathname + location.search, { target: "#results", select: "#results", swap: "outerHTML" }).catch(() => {}); // app.js states the reason
  }
}

async function poll() {
  let next = LOOK_MS;
  try {
    const { run } = await operation("webhooks.replayProgress");
    if (run) showRun(run);
    if (run?.state !== "running") return;
  } catch (error) {
    if ([401, 403, 409].includes(error.status)) { // it is over, or the page of another user
      if (watchedRun) showProblem(error.message);
      return;
    }
    next = LOOK_AFTER_TROUBLE_MS;
  }
  setTimeout(poll, next);
}

async function start(button) {
  const filters = JSON.parse(button.dataset.filters);
  const answer = await ask({
    title: `Replay all ${"more" in button.dataset ? "deliveries" : counted(Number(button.dataset.total), "delivery", "deliveries")} that match?`,
    text: `All with ${filterText(filters)}. Each is sent again with the same id and body; Queued and Retrying deliveries are skipped. It continues when you leave this page.`,
    ok: "Replay all",
    work: () => operation("webhooks.replayMany", { filters }),
  });
  if (answer !== null) await poll();
}

if (panel) {
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-replay-all]");
    if (button) start(button);
  });
  part("stop-run").addEventListener("click", ({ currentTarget }) => busy(currentTarget, async () => {
    const { run } = await operation("webhooks.stopReplay");
    document.getElementById("trouble").hidden = true; // of a try before
    if (run) showRun(run);
  }).catch((error) => showProblem(error.message)));
  poll();
  enable("replay-many");
  document.addEventListener("htmx:afterSwap", () => enable("replay-many"));
}
