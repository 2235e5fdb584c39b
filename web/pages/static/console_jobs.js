// The tab of jobs: the results of a filter, reloaded while they are shown.

import { operation } from "./api.js";
import { ask, flash, report } from "./app.js";
import { board, clock, path } from "./board.js";
import { counted } from "./words.js";

const EVERY_MS = 5000;
const PAGE = 50;
const TONES = { ready: "good", leased: "good", scheduled: "warn", failed: "bad" };

const form = document.getElementById("jobs-filters");
const older = document.getElementById("jobs-older");
const message = document.getElementById("console-message");
let trouble = ""; // the message of a failed reload
let pages = [undefined]; // the last id of each page before the one that is shown
let timer;
let asked = 0;
let isShown = false;

const filters = () => Object.fromEntries([...new FormData(form)].filter(([, value]) => value !== ""));

const acts = ({ id, state }) => [
  ...(state === "failed" || state === "scheduled" ? [["Retry", "retryJob", id]] : []),
  ...(state === "leased" ? [] : [["Cancel", "cancelJob", id]]),
];

async function load() {
  clearTimeout(timer);
  asked += 1;
  if (!isShown) return;
  const turn = asked;
  try {
    const before = pages.at(-1);
    const { jobs } = await operation("jobs.list", { ...filters(), limit: PAGE, ...(before === undefined ? {} : { before }) });
    if (turn !== asked) return; // another question was asked meanwhile
    if (trouble && message.textContent === trouble) message.hidden = true;
    trouble = "";
    board("jobs", jobs.map((job) => [String(job.id), [
      String(job.id), { badge: job.state, tone: TONES[job.state] },
      job.subject ? { link: path("Email Delivery", job.subject), text: `mail: ${job.function}` } : job.function,
      { words: job.error ?? "" }, { number: job.attempts }, job.due ? clock(Date.parse(job.due)) : "never", job.user ?? "", clock(Date.parse(job.created)),
      { acts: acts(job) },
    ]]), "");
    const { activeElement } = document;
    older.hidden = jobs.length < PAGE;
    older.dataset.before = jobs.at(-1)?.id ?? "";
    document.getElementById("jobs-newest").hidden = pages.length === 1;
    if (activeElement.hidden) document.querySelector("#jobs h2").focus(); // the pressed one is gone
  } catch (error) {
    if (turn !== asked) return;
    if (message.hidden || trouble !== error.message) report(message, error.message); // read out once
    trouble = error.message;
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
// again. `tell` is called with the number of each time.
async function many(name, tell) {
  const chosen = filters();
  let next;
  do {
    const before = next === undefined ? {} : { before: next };
    let changed;
    ({ changed, next } = await operation(name, { ...chosen, ...before })); // eslint-disable-line no-await-in-loop
    tell(changed);
  } while (next !== null);
}

const MANY = {
  retryMatching: { title: "Retry all jobs that match?", text: "Those that have failed or are scheduled become due now.", ok: "Retry all", told: "due now" },
  cancelMatching: { title: "Cancel all jobs that match?", text: "They are deleted without being run, except those in progress. Mails are recorded as failed.", ok: "Cancel all", cancel: "Keep them", danger: true, told: "cancelled" },
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
    const wanted = MANY[button.dataset.many];
    let changed = 0; // also by a try that failed later
    const work = () => many(`jobs.${button.dataset.many}`, (number) => { changed += number; });
    if ((await ask({ ...wanted, work })) === null && changed === 0) return;
    flash(`${counted(changed, "job is", "jobs are")} ${wanted.told}.`);
    fromTheNewest();
  });
}
