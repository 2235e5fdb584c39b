// The console: views come as server-sent events; only changes are written to the page.

import { ApiError, follow, operation } from "./api.js";
import { ask, flash, report, zone } from "./app.js";
import { board, element, focusAction, formatNumber, formatTime, path, write } from "./board.js";
import { jobsChanged, showJobs } from "./console_jobs.js";
import { busy, enable } from "./forms.js";
import { Graph } from "./graph.js";
import { counted, number, sentence } from "./words.js";

const $ = (id) => document.getElementById(id);
const graphs = {
  deliveries: new Graph($("graph-deliveries")),
  flight: new Graph($("graph-flight")),
  waiting: new Graph($("graph-waiting")),
  messages: new Graph($("graph-messages")),
};

// The list of the deliveries of a group, where all that match can be replayed.
const deliveriesOf = ({ webhook, error }) => `/app/Webhook%20Delivery?${new URLSearchParams({ status: "Failed", webhook, ...(error ? { error } : {}) })}`;

const TONES = { "this service": "good", running: "good", healthy: "good", slow: "warn", paused: "warn", suspended: "warn", failing: "bad", failed: "bad" };
const badge = (text) => ({ badge: text, tone: TONES[text] ?? "" });

// A receiver that is known from the store alone has no slots here, and cannot be paused.
const isKnown = (receiver) => receiver.limit > 0;

function show(view) {
  const waiting = view.store.queues.find((each) => each[0] === "webhook")?.[1] ?? 0;
  const webhookOf = ({ webhook }) => ({ link: path("Webhook", webhook), text: view.store.webhookLabels[webhook] ?? webhook });
  const deliveries = Object.values(view.rates).reduce((sum, rate) => sum + rate, 0);
  const messages = view.tree.reduce((sum, node) => sum + node.rate, 0);
  for (const [name, value] of Object.entries({ deliveries, messages, waiting, flight: view.inFlight })) {
    graphs[name].add(view.at, value);
    write($(`now-${name}`), formatNumber(value));
  }
  board("tree", view.tree.map((node) => [node.path, [
    node.name, badge(node.state), { number: node.rate }, { number: node.restarts }, { words: node.lastError },
    node.kind === "pool" ? number.format(node.depth) : node.capacity ? `${number.format(node.depth)} of ${number.format(node.capacity)}` : "",
    node.kind === "pool" ? { number: node.alive } : "", { number: node.handled }, { number: node.failed },
    { acts: node.kind === "actor" ? [["Trace", "trace", node.name], ["Restart", "restart", node.name]] : [] },
  ], node.level]));
  board("senders", view.store.senders.map((each) => [each.name, [
    each.name, view.processes.includes(each.name) ? badge("this service") : "another process: actions here do not affect it", { number: each.attempts }, formatTime(each.last),
  ]]));
  board("receivers", view.receivers.map((each) => [each.origin, [
    each.origin, badge(each.health), { number: each.waiting, more: each.moreWait }, { number: each.inFlight }, isKnown(each) ? { number: each.window } : "", isKnown(each) ? { number: each.limit } : "",
    each.failures ? `${number.format(each.failures)} in a row since ${formatTime(each.failingSince)}` : "", { words: each.failures ? sentence(each.lastError) : "" },
    each.lastSuccess ? formatTime(each.lastSuccess) : "",
    { acts: !isKnown(each) ? [] : [each.health === "paused" ? ["Resume", "resume", each.origin] : ["Pause", "pause", each.origin]] },
  ]]));
  board("paused", view.store.pausedWebhooks.map((each) => [each.webhook, [
    webhookOf(each), formatTime(each.since), each.until ? formatTime(each.until) : "it is resumed", { acts: [["Resume", "resumeWebhook", each.webhook]] },
  ]]));
  board("queues", view.store.queues.map(([queue, ready, scheduled, leased, failed, oldest]) => [queue, [
    queue, { number: ready }, { number: scheduled }, { number: leased }, { number: failed }, { number: oldest },
  ]]));
  board("flight", view.store.inFlight.map((each) => [each.delivery, [
    { link: path("Webhook Delivery", each.delivery), text: each.delivery }, each.event, webhookOf(each), { number: each.attempts }, formatTime(each.at),
  ]]), view.inFlight);
  board("upcoming", view.store.upcoming.map((each) => [each.delivery, [
    { link: path("Webhook Delivery", each.delivery), text: each.delivery }, each.event, webhookOf(each), badge(each.status), { number: each.attempts }, each.at > view.at ? formatTime(each.at) : "waiting for its receiver",
  ]]), "");
  const failures = view.store.failures.reduce((sum, each) => sum + each.deliveries, 0);
  board("causes", view.store.failures.map((each) => [`${each.webhook}\n${each.error}`, [
    { link: path("Webhook", each.webhook), text: each.label }, { words: sentence(each.error) || "no error is recorded" }, { number: each.deliveries }, formatTime(each.first), formatTime(each.last),
    { link: deliveriesOf(each), text: "Show and replay" },
  ]]), failures);
  board("failed", view.store.failed.map((each) => [each.delivery, [
    { link: path("Webhook Delivery", each.delivery), text: each.delivery }, each.event, webhookOf(each), formatTime(each.at), { words: sentence(each.error) }, { acts: [["Replay", "replay", each.delivery]] },
  ]]), "");
  board("locks", view.store.locks.map((lock) => [lock.key, [
    lock.identifier || `unknown (${lock.key})`, lock.account || "none", formatTime(lock.until), { acts: lock.account ? [["Unlock", "unlock", lock.account]] : [] },
  ]]));
  board("letters", view.lastDeadLetters.slice(0, 20).map((letter, index) => [`${letter.at}-${index}`, [
    letter.recipient, letter.message, { words: letter.reason }, formatTime(letter.at),
  ]]), view.deadLetters);
  traces(view.traces, view.at);
  count("actors", view.tree.filter((node) => node.state !== "running").length);
  count("receivers", view.receivers.filter((each) => each.health !== "healthy").length);
  count("deliveries", waiting);
  count("failures", failures);
  count("jobs", view.store.queues.filter((each) => each[0] !== "webhook").reduce((sum, each) => sum + each[4], 0));
  count("lockouts", view.store.locks.length);
  count("traces", view.traces.length);
}

// The number of entries that need attention in a tab; nothing is shown for 0.
const count = (part, value) => write($(`tab-${part}`), value ? number.format(value) : "");

function elementOf(fragment) {
  try {
    return document.getElementById(decodeURIComponent(fragment.slice(1)));
  } catch {
    return null; // "#%"
  }
}

// The tabs are links to parts of the page, so that "back" and bookmarks work.
function chooseTab() {
  const parts = [...document.querySelectorAll("[data-part]")];
  const selected = elementOf(location.hash)?.closest("[data-part]") ?? parts.find((each) => location.hash && !each.hidden) ?? parts[0]; // "Skip to content" is in no part
  for (const each of parts) each.hidden = each !== selected;
  for (const link of document.querySelectorAll(".tabs a")) {
    if (link.hash === `#${selected.id}`) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
  }
  showJobs(selected.id === "jobs-part");
}
addEventListener("hashchange", chooseTab);
chooseTab();

function traces(found, now) {
  const holder = $("traces").querySelector("[data-traces]");
  $("traces").querySelector("[data-empty]").hidden = found.length > 0;
  const panels = new Map([...holder.children].map((each) => [each.dataset.actor, each]));
  for (const trace of found) {
    let panel = panels.get(trace.actor);
    panels.delete(trace.actor);
    if (!panel) {
      panel = element("div", "", "panel");
      panel.dataset.actor = trace.actor;
      const list = document.createElement("pre");
      list.tabIndex = 0;
      list.setAttribute("aria-label", `Messages to ${trace.actor}`);
      panel.append(element("h3", ""), list);
      holder.append(panel);
    }
    const left = Math.max(0, Math.round((trace.until - now) / 1000));
    write(panel.firstElementChild, `${trace.actor}: ${counted(trace.seen, "message", "messages")}, ${left ? `${left} s left` : "over"}`);
    write(panel.lastElementChild, trace.messages.map((each) => `${formatTime(each.at)}  ${each.message}(${each.fields})`).reverse().join("\n") || "No message yet.");
  }
  for (const panel of panels.values()) panel.remove();
}

const ACTS = {
  pause: { title: "Pause this receiver?", text: "This service sends nothing to it until you resume it, or the service ends; due deliveries wait. To pause a Webhook for longer, use its page.", ok: "Pause", done: "Paused.", work: (receiver) => operation("console.pause", { receiver }) },
  resume: { done: "Resumed.", work: (receiver) => operation("console.resume", { receiver }) },
  resumeWebhook: { done: "Resumed.", work: (webhook) => operation("webhooks.resume", { webhook }) },
  restart: { title: "Restart this actor?", text: "It first handles the messages in its mailbox, for at most 5 seconds; until it has started again, further messages are refused. Work in the store is kept.", ok: "Restart", danger: true, done: "Restarted.", work: (actor) => operation("console.restart", { actor }) },
  trace: { done: "Traced for a minute: see the tab Traces.", work: (actor) => operation("console.trace", { actor }) },
  replay: { title: "Replay this delivery?", text: "It is sent again with the same id and body.", ok: "Replay", done: "Queued again.", work: (delivery) => operation("webhooks.replay", { delivery }) },
  retryJob: { done: "Due now.", work: (job) => operation("jobs.retry", { job: Number(job) }) },
  cancelJob: { title: "Cancel this job?", text: "It is deleted without being run. If it is a mail, the mail is recorded as failed.", ok: "Cancel the job", cancel: "Keep it", danger: true, done: "Cancelled.", work: (job) => operation("jobs.cancel", { job: Number(job) }) },
  unlock: { title: "Unlock this account?", text: "Its name and e-mail may be tried again at once.", ok: "Unlock", done: "Unlocked.", work: (user) => operation("console.unlock", { user }) },
};

document.querySelector("main").addEventListener("click", (event) => {
  const button = event.target.closest("button[data-act]");
  if (!button) return;
  const { act, name } = button.dataset;
  const action = ACTS[act];
  const [section, cell] = [button.closest("section"), button.closest("td")];
  const isSingle = cell.children.length === 1;
  busy(button, async () => {
    $("console-message").hidden = true;
    if (action.title) {
      const answer = await ask({ ...action, title: `${action.title.slice(0, -1)}: ${name}?`, work: () => action.work(name) });
      if (answer === null) return;
    } else {
      await action.work(name);
    }
    flash(`${name}: ${action.done}`);
    if (act.endsWith("Job")) jobsChanged();
  }).catch((error) => {
    report($("console-message"), error.message);
  }).finally(() => { // behind the question the row may have changed, or be gone
    if (!document.activeElement.matches("body, dialog:not([open]) *")) return;
    if (cell.isConnected) focusAction(cell, act, isSingle);
    else section.querySelector("h2").focus();
  });
});

// The stream of views. It is followed until the page is left or hidden for long: it would take one
// of the few streams of the service, and of the few connections of the browser.
const AGAIN_MS = 3000;
const SILENT_MS = 30_000; // then the connection is dead, although nothing has ended it
const HIDDEN_MS = 60_000;
const live = $("live");
const message = $("console-message");
let stream = null; // aborts the one that is followed
let intervalSeconds = 1; // seconds between two views
let lastRefusal = ""; // the message of the last refusal, which its end hides
let pending = null;
let retryTimer;
let silenceTimer;
let hiddenTimer;

function showState(text, tone = "") {
  live.className = `badge ${tone}`;
  write(live, text);
}

function receive(name, data) {
  if (name === "history") {
    for (const graph of Object.values(graphs)) graph.clear();
    for (const each of JSON.parse(data)) {
      graphs.deliveries.keep(each.at, each.deliveries);
      graphs.flight.keep(each.at, each.inFlight);
      graphs.waiting.keep(each.at, each.waiting);
      graphs.messages.keep(each.at, each.messages);
    }
    return;
  }
  // At most one view a frame: a page in the background catches up with the last one.
  if (pending === null) requestAnimationFrame(() => {
    const view = JSON.parse(pending);
    pending = null;
    intervalSeconds = view.every;
    show(view);
    if (stream === null) return; // lost meanwhile
    $("again").hidden = true; // the user is signed in again
    showState(intervalSeconds > 1.5 ? `live, every ${Math.round(intervalSeconds)} s` : "live", "good");
    if (lastRefusal && message.textContent === lastRefusal) message.hidden = true;
    lastRefusal = "";
  });
  pending = data;
}

function leave() {
  clearTimeout(retryTimer);
  clearTimeout(silenceTimer);
  stream?.abort();
  stream = null;
}

const LOST = "connection lost, trying again";
function reconnect(reason = LOST) {
  leave();
  showState(reason, "bad");
  retryTimer = setTimeout(watch, AGAIN_MS);
}

function refuse({ status, type, message: reason }) {
  const hasEnded = [401, 403, 409].includes(status); // the session has ended, or is another user's
  const isReason = type !== "Unreachable" && status !== 401;
  if (isReason && (message.hidden || message.textContent !== reason)) report(message, reason); // read out once
  if (isReason) lastRefusal = reason;
  if (!hasEnded) {
    reconnect(isReason ? "not connected, trying again" : LOST);
    return;
  }
  leave();
  showState("ended", "bad");
  $("again").hidden = false;
}

async function watch() {
  leave();
  const controller = new AbortController();
  stream = controller;
  const listen = () => {
    clearTimeout(silenceTimer);
    silenceTimer = setTimeout(reconnect, SILENT_MS + 2000 * intervalSeconds);
  };
  listen();
  try {
    await follow("/app/console/events", controller.signal, (name, data) => {
      if (stream !== controller) return;
      listen();
      receive(name, data);
    });
    if (stream === controller) reconnect(); // the service restarts, or the session has ended
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    if (stream === controller) refuse(error);
  }
}

addEventListener("pagehide", leave);
addEventListener("pageshow", (event) => { // back, out of the browser's memory
  if (event.persisted) watch();
});
function followVisibility() {
  clearTimeout(hiddenTimer);
  if (document.visibilityState === "hidden") {
    hiddenTimer = setTimeout(() => {
      if ($("again").hidden) showState("connecting");
      leave();
    }, HIDDEN_MS);
  } else if (stream === null && $("again").hidden) {
    watch();
  }
}
document.addEventListener("visibilitychange", followVisibility);
document.querySelector("[data-zone]").textContent = ` (${zone()})`;
watch();
followVisibility(); // opened in the background
enable("console");
