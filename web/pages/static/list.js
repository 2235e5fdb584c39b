// The functions of a list: ranges of times, actions on selected rows, invitations in the list of
// users.

import { call, documentPath, operation } from "./api.js";
import { ask, flashNext, warnBeforeLeaving, zone } from "./app.js";
import { busy, enable } from "./forms.js";
import { handOver } from "./links.js";
import { counted, number } from "./words.js";

const AT_ONCE = 4;
const ROLES_OFFERED = 100;

document.querySelector("[data-invite]")?.addEventListener("click", ({ currentTarget }) => busy(currentTarget, async () => {
  let invited;
  const query = new URLSearchParams({ fields: '["name"]', order_by: "name", limit: ROLES_OFFERED });
  const roles = await call("GET", `${documentPath("Role")}?${query}`).catch(() => ({ data: [], total: 0 }));
  const more = roles.total > roles.data.length ? " Not all roles are listed here; others are given on the account's page." : "";
  const email = await ask({
    title: "Invite somebody",
    text: `A link to choose a password is sent to this address.${more}`,
    ok: "Invite",
    field: { label: "E-mail", type: "email" },
    choices: { label: "Roles", options: roles.data.map((role) => role.name) },
    work: async (typed, chosen) => { invited = await operation("users.invite", { email: typed, roles: chosen }); },
  });
  if (email === null) return;
  const page = `/app/User/${encodeURIComponent(invited.user)}`;
  await handOver("Invited.", invited.link);
  flashNext("Invited.");
  location.assign(page);
}));

// Acts on the selected rows, a few at a time, until all are done or the user stops it.

const DELIVERIES = ["delivery", "deliveries"];
const ACCOUNTS = ["account", "accounts"];
const WEBHOOKS = ["webhook", "webhooks"];
const ACTS = {
  replay: {
    noun: DELIVERIES, verb: "Replay", done: "queued again", refused: "not replayed",
    text: "Each is sent again with the same id and body. Deliveries in progress are skipped.",
    work: (delivery) => operation("webhooks.replay", { delivery }),
  },
  cancel: {
    noun: DELIVERIES, verb: "Cancel", ok: "Cancel them", done: "cancelled", refused: "not cancelled", danger: true,
    text: "They become Failed, and nothing more is sent. Deliveries that are being sent now, or have ended, are skipped.",
    work: (delivery) => operation("webhooks.cancel", { delivery }),
  },
  erase: {
    noun: DELIVERIES, verb: "Erase", done: "erased", refused: "not erased", danger: true,
    text: "The sent bodies and the answers are erased permanently, and these deliveries cannot be replayed any more; their records stay.",
    work: (delivery) => operation("webhooks.erase", { delivery }),
  },
  end: {
    noun: ACCOUNTS, verb: "End the sessions of", button: "End sessions of", ok: "End them", done: "signed out", refused: "not signed out", danger: true,
    text: "Everybody who is signed in with one of them must sign in again. API keys continue to work. Your own account is included if you selected it.",
    work: (user) => operation("users.revokeUserSessions", { user }),
  },
  unlock: {
    noun: ACCOUNTS, verb: "Unlock", done: "unlocked", refused: "not unlocked",
    text: "Failed sign-ins by their names and e-mails are forgotten.",
    work: (user) => operation("users.unlockUser", { user }),
  },
  pause: {
    noun: WEBHOOKS, verb: "Pause", done: "paused", refused: "not paused",
    text: "Their due deliveries wait in their order until they are resumed.",
    work: (webhook) => operation("webhooks.pause", { webhook }),
  },
  resume: {
    noun: WEBHOOKS, verb: "Resume", done: "resumed", refused: "not resumed",
    text: "Due deliveries are sent now.",
    work: (webhook) => operation("webhooks.resume", { webhook }),
  },
};

let isActing = false;
const selectedBoxes = () => [...document.querySelectorAll("#results tbody .pick input:checked")];

function updateSelection() {
  const chosen = selectedBoxes().length;
  const all = document.querySelector("#results [data-all]");
  if (all) {
    all.checked = chosen > 0 && chosen === document.querySelectorAll("#results tbody .pick input").length;
    all.indeterminate = chosen > 0 && !all.checked;
  }
  const note = document.querySelector("[data-selected]");
  const text = chosen ? `${number.format(chosen)} selected.` : "Select rows to act on them.";
  if (note && note.textContent !== text) note.textContent = text; // read out once
  for (const button of document.querySelectorAll("[data-bulk]")) {
    const { verb, button: label = verb, noun } = ACTS[button.dataset.bulk];
    button.disabled = isActing || chosen === 0;
    button.textContent = chosen ? `${label} ${counted(chosen, ...noun)}` : `${label} selected`;
  }
}

async function actOnSelected(act) {
  const names = selectedBoxes().map((input) => input.value);
  const chosen = new Set(names);
  const title = `${act.verb} ${counted(names.length, ...act.noun)}`;
  const answer = await ask({ title: `${title}?`, text: act.text, ok: act.ok ?? act.verb, danger: act.danger });
  if (answer === null) return;
  const holder = document.querySelector("[data-progress]");
  const bar = holder.querySelector("progress");
  const status = holder.querySelector("[role=status]");
  const count = holder.querySelector("[data-done]"); // not in the status: nobody wants to hear each
  const stop = holder.querySelector("[data-stop]");
  let stopped = false;
  stop.onclick = () => { stopped = true; };
  stop.hidden = false;
  holder.hidden = false;
  bar.max = names.length;
  const refused = new Map();
  let unanswered = 0;
  let done = 0;
  const showProgress = () => {
    bar.value = done;
    count.textContent = `${done} of ${bar.max}`;
  };
  status.textContent = "";
  showProgress();
  isActing = true;
  updateSelection();
  const release = warnBeforeLeaving(() => true); // nobody would carry out the rest
  const work = async () => {
    while (names.length > 0 && !stopped) {
      try {
        await act.work(names.shift());
      } catch (error) {
        if (error.status === 0) unanswered += 1; // it may have been carried out
        else refused.set(error.message, (refused.get(error.message) ?? 0) + 1);
        if (error.status === 0 || error.status === 401) stopped = true; // the rest would fail too
      }
      done += 1;
      showProgress();
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  release();
  isActing = false;
  stop.hidden = true;
  count.textContent = "";
  const succeeded = done - unanswered - [...refused.values()].reduce((sum, number) => sum + number, 0);
  const messages = [...refused].map(([message, number]) => `${number} ${act.refused}: ${message}`);
  if (unanswered) messages.push(`For ${unanswered} the service did not answer: check whether ${unanswered === 1 ? "it is" : "they are"} ${act.done}.`);
  if (names.length) messages.push(`${names.length} not tried.`);
  status.textContent = [stopped ? "Stopped." : "Done.", `${counted(succeeded, ...act.noun)} ${succeeded === 1 ? "is" : "are"} ${act.done}.`, ...messages].join(" ");
  status.tabIndex = -1;
  const { activeElement } = document;
  if (activeElement === document.body || activeElement.matches(":disabled, [data-stop]")) status.focus(); // the button is off
  if (selectedBoxes().every((input) => chosen.has(input.value))) {
    await htmx.ajax("GET", location.pathname + location.search, { target: "#results", select: "#results", swap: "outerHTML" }).catch(() => {}); // app.js states the reason
  }
  updateSelection();
}

function selectAll(checked) {
  for (const input of document.querySelectorAll("#results tbody .pick input")) input.checked = checked;
}

document.addEventListener("change", (event) => {
  if (event.target.matches("[data-all]")) selectAll(event.target.checked);
  if (event.target.closest("#results .pick")) updateSelection();
});
if (document.querySelector("[data-all]")?.checked) selectAll(true); // while the scripts were loading
updateSelection();
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-bulk]");
  if (button) actOnSelected(ACTS[button.dataset.bulk]);
});
// A range is typed in the user's time zone, and requested in UTC.
const local = (at) => new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
const filters = document.querySelector("form.filters");
const isEdited = (input) => {
  const served = document.createElement("input");
  [served.type, served.value] = [input.type, input.defaultValue]; // as the browser writes it
  return input.value !== served.value;
};
for (const input of document.querySelectorAll("[data-time]")) {
  const hidden = Object.assign(document.createElement("input"), { type: "hidden", name: input.name });
  const requested = input.getAttribute("value");
  const update = () => {
    const at = new Date(input.value);
    hidden.value = Number.isNaN(at.getTime()) ? input.value : at.toISOString(); // the service refuses invalid times by field
  };
  if (isEdited(input)) update();
  else if (requested) {
    const at = new Date(/[Z+]|-\d\d:\d\d$/.test(requested.slice(10)) ? requested : `${requested}Z`);
    if (!Number.isNaN(at.getTime())) [input.value, input.defaultValue, hidden.value] = [local(at), local(at), at.toISOString()];
  }
  input.removeAttribute("name");
  input.after(hidden);
  input.addEventListener("change", update, true);
  input.closest(".field").querySelector("[data-zone]").textContent = `(${zone()})`;
}

// On a small screen the filters are behind a button, so that the first row is visible. It says how
// many of them are set.
const filtersButton = document.getElementById("show-filters");
function countFilters() {
  const set = [...filters.querySelectorAll(".narrowed :is(select, input:not([type=hidden]))")].filter((input) => input.value !== "");
  filtersButton.textContent = set.length ? `Filters (${set.length})` : "Filters";
}
countFilters();
filters.addEventListener("input", countFilters);
filtersButton.addEventListener("click", () => {
  const open = filters.classList.toggle("open");
  filtersButton.setAttribute("aria-expanded", String(open));
});

// What the user changed while the scripts were loading is requested as soon as htmx, whose script
// precedes this one, listens to the form.
const isChanged = (select) => select.value !== (select.querySelector("option[selected]") ?? select.options[0]).value;
document.addEventListener("DOMContentLoaded", () => {
  const wasChanged = [...filters.querySelectorAll("select")].some(isChanged) || [...filters.querySelectorAll(".typed, [data-time]")].some(isEdited);
  if (wasChanged) htmx.trigger(filters, "submit");
});

// A search that failed is repeated by Enter; the form has no button.
filters.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && event.target.matches(".typed")) htmx.trigger(filters, "submit");
});

// What is typed into one field is one step of the browser's history, which Back undoes; so is a
// search that is repeated.
let typing = null;
document.addEventListener("htmx:beforeHistoryUpdate", ({ detail: { history, requestConfig: { triggeringEvent } } }) => {
  const typed = triggeringEvent?.type === "input" ? triggeringEvent.target : null;
  const isRepeated = history.path === location.pathname + location.search;
  if (isRepeated || (typed && typed === typing)) history.type = "replace";
  if (!isRepeated) typing = typed;
});

// A list that is on its way is shown as such; a new one replaces it.
const resultSection = () => document.getElementById("results");
document.addEventListener("htmx:beforeRequest", ({ detail }) => detail.target.id === "results" && resultSection().setAttribute("aria-busy", "true"));
document.addEventListener("htmx:afterRequest", () => resultSection().removeAttribute("aria-busy"));

// While a list is requested, another response can replace the list whose place it would take.
document.addEventListener("htmx:beforeOnLoad", (event) => {
  if (event.detail.target.isConnected) return;
  event.preventDefault();
  if (event.target === filters) htmx.trigger(filters, "submit");
});

// The number of results is announced to screen readers.
document.addEventListener("htmx:afterSwap", () => {
  const { total, more } = resultSection().dataset;
  const count = `${more === undefined ? "" : "More than "}${number.format(total)} found.`;
  document.getElementById("result-count").textContent = Number(total) ? count : "Nothing found.";
});
enable("list");
