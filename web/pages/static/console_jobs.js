// The tab of jobs: the results of a filter, reloaded while they are shown.

import { operation } from "./api.js";
import { ask, flash, report } from "./app.js";
import { board, formatTime, path } from "./board.js";
import { counted } from "./words.js";

const EVERY_MS = 5000;
const PAGE = 50;
const TONES = { ready: "good", leased: "good", scheduled: "warn", failed: "bad" };

const form = document.getElementById("jobs-filters");
const older = document.getElementById("jobs-older");
const message = document.getElementById("console-message");
let lastError = ""; // the message of a failed reload
let pages = [undefined]; // the last id of each page before the one that is shown
let timer;
let lastRequest = 0;
let isShown = false;

const filters = () => Object.fromEntries([...new FormData(form)].filter(([, value]) => value !== ""));

const acts = ({ id, state }) => [
  ...(state === "failed" || state === "scheduled" ? [["Retry", "retryJob", id]] : []),
  ...(state === "leased" ? [] : [["Cancel", "cancelJob", id]]),
];

async function load() {
  clearTimeout(timer);
  lastRequest += 1;
  if (!isShown) return;
  const request = lastRequest;
  try {
    const before = pages.at(-1);
    const { jobs } = await operation("jobs.list", { ...filters(), limit: PAGE, ...(before === undefined ? {} : { before }) });
    if (request !== lastRequest) return; // the filter has changed meanwhile
    if (lastError && message.textContent === lastError) message.hidden = true;
    lastError = "";
    board("jobs", jobs.map((job) => [String(job.id), [
      String(job.id), { badge: job.state, tone: TONES[job.state] },
      job.subject ? { link: path("Email Delivery", job.subject), text: `mail: ${job.function}` } : job.function,
      { words: job.error ?? "" }, { number: job.attempts }, job.due ? formatTime(Date.parse(job.due)) : "never", job.user ?? "", formatTime(Date.parse(job.created)),
      { acts: acts(job) },
    ]]), "");
    const { activeElement } = document;
    older.hidden = jobs.length < PAGE;
    older.dataset.before = jobs.at(-1)?.id ?? "";
    document.getElementById("jobs-newest").hidden = pages.length === 1;
    if (activeElement.hidden) document.querySelector("#jobs h2").focus(); // the pressed one is gone
  } catch (error) {
    if (request !== lastRequest) return;
    if (message.hidden || lastError !== error.message) report(message, error.message); // read out once
    lastError = error.message;
  }
  timer = setTimeout(load, EVERY_MS);
}

export function showJobs(visible) {
  isShown = visible;
  load();
}
export const jobsChanged = () => load();

function fromTheNewest() {
  pages = [undefined];
  load();
}

// All jobs that match now, 500 at a time and each once: a retried job may fail again and match
// again. `onChanged` is called with the number of each time.
async function changeAll(name, onChanged) {
  const selection = filters();
  let next;
  do {
    const before = next === undefined ? {} : { before: next };
    let changed;
    ({ changed, next } = await operation(name, { ...selection, ...before })); // eslint-disable-line no-await-in-loop
    onChanged(changed);
  } while (next !== null);
}

const MANY = {
  retryMatching: { title: "Retry all jobs that match?", text: "Those that have failed or are scheduled become due now.", ok: "Retry all", result: "due now" },
  cancelMatching: { title: "Cancel all jobs that match?", text: "They are deleted without being run, except those in progress. Mails are recorded as failed.", ok: "Cancel all", cancel: "Keep them", danger: true, result: "cancelled" },
};

form.addEventListener("submit", (event) => {
  event.preventDefault();
  fromTheNewest();
});
form.addEventListener("change", fromTheNewest);
older.addEventListener("click", () => {
  pages.push(Number(older.dataset.before));
  load();
});
document.getElementById("jobs-newest").addEventListener("click", fromTheNewest);
for (const button of document.querySelectorAll("[data-many]")) {
  button.addEventListener("click", async () => {
    const action = MANY[button.dataset.many];
    let changed = 0; // also by a try that failed later
    const work = () => changeAll(`jobs.${button.dataset.many}`, (number) => { changed += number; });
    if ((await ask({ ...action, work })) === null && changed === 0) return;
    flash(`${counted(changed, "job is", "jobs are")} ${action.result}.`);
    fromTheNewest();
  });
}
