// The console: views come as server-sent events; only what has changed is written to the page.

import { operation } from "./api.js";
import { ask, flash } from "./app.js";
import { Graph } from "./graph.js";

const $ = (id) => document.getElementById(id);
const number = new Intl.NumberFormat();
const shown = (value) => number.format(Math.round(value * 10) / 10);
const clock = (ms) => {
  const at = new Date(ms);
  const today = at.toDateString() === new Date().toDateString();
  return today ? at.toLocaleTimeString() : at.toLocaleString(undefined, { dateStyle: "short", timeStyle: "short" });
};
const path = (doctype, name) => `/app/${encodeURIComponent(doctype)}/${encodeURIComponent(name)}`;
const graphs = {
  deliveries: new Graph($("graph-deliveries")),
  flight: new Graph($("graph-flight")),
  waiting: new Graph($("graph-waiting")),
  messages: new Graph($("graph-messages")),
};

const write = (node, text) => {
  if (node.textContent !== text) node.textContent = text;
};

// A cell is a text, or {badge, tone}, {link, text}, {number}, {acts: [[label, act, name], …]}.
function fill(cell, value) {
  if (typeof value !== "object") {
    write(cell, String(value));
    return;
  }
  if (value.number !== undefined) {
    cell.className = "is-number";
    write(cell, shown(value.number));
    return;
  }
  const key = JSON.stringify(value);
  if (cell.dataset.key === key) return;
  cell.dataset.key = key;
  const focused = cell.contains(document.activeElement);
  cell.replaceChildren(...parts(value));
  if (focused) cell.querySelector("button, a")?.focus(); // keep the keyboard focus
}

function parts(value) {
  if (value.badge !== undefined) return [element("span", value.badge, `badge ${value.tone ?? ""}`)];
  if (value.link !== undefined) {
    const link = element("a", value.text);
    link.href = value.link;
    return [link];
  }
  return (value.acts ?? []).map(([label, act, name]) => {
    const button = element("button", label, "compact");
    button.type = "button";
    Object.assign(button.dataset, { act, name });
    button.append(element("span", ` ${name}`, "away"));
    return button;
  });
}

function element(tag, text, className = "") {
  const made = document.createElement(tag);
  made.textContent = text;
  if (className) made.className = className;
  return made;
}

// Show rows, each `[key, cells, level]`, in a board; rows that stay are written over, not made anew.
function board(id, rows, count = rows.length) {
  const section = $(id);
  const body = section.querySelector("tbody");
  const known = new Map([...body.children].map((row) => [row.dataset.key, row]));
  rows.forEach(([key, cells, level], index) => {
    let row = known.get(key);
    known.delete(key);
    if (!row) {
      row = document.createElement("tr");
      row.dataset.key = key;
      row.append(...cells.map((_, place) => document.createElement(place ? "td" : "th")));
      row.firstElementChild.scope = "row";
      if (level) row.classList.add(`level-${Math.min(level, 4)}`);
    }
    if (body.children[index] !== row) body.insertBefore(row, body.children[index] ?? null);
    cells.forEach((cell, place) => fill(row.children[place], cell));
  });
  for (const row of known.values()) {
    if (row.contains(document.activeElement)) section.querySelector("h2").focus();
    row.remove();
  }
  section.querySelector(".scroll").hidden = rows.length === 0;
  section.querySelector("[data-empty]").hidden = rows.length > 0;
  write(section.querySelector("[data-count]"), count ? number.format(count) : "");
}

const TONES = { running: "good", healthy: "good", slow: "warn", paused: "warn", suspended: "warn", failing: "bad", failed: "bad" };
const badge = (text) => ({ badge: text, tone: TONES[text] ?? "" });

function show(view) {
  const waiting = view.store.queues.find((each) => each[0] === "webhook")?.[1] ?? 0;
  const deliveries = Object.values(view.rates).reduce((sum, rate) => sum + rate, 0);
  const messages = view.tree.reduce((sum, node) => sum + node.rate, 0);
  for (const [name, value] of Object.entries({ deliveries, messages, waiting, flight: view.inFlight })) {
    graphs[name].add(value);
    write($(`now-${name}`), shown(value));
  }
  board("tree", view.tree.map((node) => [node.path, [
    node.name, badge(node.state), node.kind === "pool" ? number.format(node.depth) : node.capacity ? `${number.format(node.depth)} of ${number.format(node.capacity)}` : "",
    node.kind === "pool" ? { number: node.alive } : "", { number: node.rate }, { number: node.handled }, { number: node.failed }, { number: node.restarts }, node.lastError,
    { acts: node.kind === "actor" ? [["Trace", "trace", node.name], ["Restart", "restart", node.name]] : [] },
  ], node.level]));
  board("receivers", view.receivers.map((each) => [each.origin, [
    each.origin, badge(each.health), { number: each.inFlight }, { number: each.window }, { number: each.limit },
    each.failures ? `${number.format(each.failures)} in a row since ${clock(each.failingSince)}: ${each.lastError}` : "",
    { acts: [each.health === "paused" ? ["Resume", "resume", each.origin] : ["Pause", "pause", each.origin]] },
  ]]));
  board("paused", view.store.pausedWebhooks.map((each) => [each.webhook, [
    { link: path("Webhook", each.webhook), text: each.webhook }, clock(each.since), each.until ? clock(each.until) : "it is resumed", { acts: [["Resume", "resumeWebhook", each.webhook]] },
  ]]));
  board("queues", view.store.queues.map(([queue, ready, scheduled, leased, failed, oldest]) => [queue, [
    queue, { number: ready }, { number: scheduled }, { number: leased }, { number: failed }, { number: oldest },
  ]]));
  board("flight", view.store.inFlight.map((each) => [each.delivery, [
    { link: path("Webhook Delivery", each.delivery), text: each.delivery }, each.event, { link: path("Webhook", each.webhook), text: each.webhook }, { number: each.attempts }, clock(each.at),
  ]]), view.inFlight);
  board("upcoming", view.store.upcoming.map((each) => [each.delivery, [
    { link: path("Webhook Delivery", each.delivery), text: each.delivery }, each.event, badge(each.status), { number: each.attempts }, each.at > view.at ? clock(each.at) : "waiting for its receiver",
  ]]), "");
  board("failed", view.store.failed.map((each) => [each.delivery, [
    { link: path("Webhook Delivery", each.delivery), text: each.delivery }, each.event, { link: path("Webhook", each.webhook), text: each.webhook }, clock(each.at), each.error, { acts: [["Replay", "replay", each.delivery]] },
  ]]), "");
  board("locks", view.store.locks.map((lock) => [lock.key, [
    lock.identifier || `somebody (${lock.key})`, lock.account || "none", clock(lock.until), { acts: lock.account ? [["Unlock", "unlock", lock.account]] : [] },
  ]]));
  board("letters", view.lastDeadLetters.slice(0, 20).map((letter, index) => [`${letter.at}-${index}`, [
    letter.recipient, letter.message, letter.reason, clock(letter.at),
  ]]), view.deadLetters);
  traces(view.traces, view.at);
}

function traces(found, now) {
  const holder = $("traces").querySelector("[data-traces]");
  $("traces").querySelector("[data-empty]").hidden = found.length > 0;
  const known = new Map([...holder.children].map((each) => [each.dataset.actor, each]));
  for (const trace of found) {
    let panel = known.get(trace.actor);
    known.delete(trace.actor);
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
    write(panel.firstElementChild, `${trace.actor}: ${number.format(trace.seen)} messages, ${left ? `${left} s left` : "over"}`);
    write(panel.lastElementChild, trace.messages.map((each) => `${clock(each.at)}  ${each.message}(${each.fields})`).reverse().join("\n") || "No message yet.");
  }
  for (const panel of known.values()) panel.remove();
}

const ACTS = {
  pause: { title: "Pause this receiver?", text: "This service sends nothing to it until you resume it, or the service ends; due deliveries wait. To pause a webhook for longer, use its page.", ok: "Pause", done: "Paused.", work: (receiver) => operation("console.pause", { receiver }) },
  resume: { done: "Resumed.", work: (receiver) => operation("console.resume", { receiver }) },
  resumeWebhook: { done: "Resumed.", work: (webhook) => operation("webhooks.resume", { webhook }) },
  restart: { title: "Restart this actor?", text: "Messages in its mailbox are dropped; work in the store is kept.", ok: "Restart", danger: true, done: "Restarted.", work: (actor) => operation("console.restart", { actor }) },
  trace: { done: "Traced for a minute, see below.", work: (actor) => operation("console.trace", { actor }) },
  replay: { title: "Replay this delivery?", text: "It is sent again with the same id and body.", ok: "Replay", done: "Queued again.", work: (delivery) => operation("webhooks.replay", { delivery }) },
  unlock: { title: "Unlock this account?", text: "Its name and e-mail may be tried again at once.", ok: "Unlock", done: "Unlocked.", work: (user) => operation("console.unlock", { user }) },
};

document.querySelector("main").addEventListener("click", async (event) => {
  const button = event.target.closest("button[data-act]");
  if (!button) return;
  const { act, name } = button.dataset;
  const wanted = ACTS[act];
  $("console-message").hidden = true;
  try {
    if (wanted.title) {
      const sure = await ask({ ...wanted, title: `${wanted.title.slice(0, -1)}: ${name}?`, work: () => wanted.work(name) });
      if (sure === null) return;
    } else {
      await wanted.work(name);
    }
    flash(`${name}: ${wanted.done}`);
  } catch (error) {
    $("console-message").textContent = error.message;
    $("console-message").hidden = false;
  }
});

let pending = null;
function connect() {
  const source = new EventSource("/app/console/events");
  source.addEventListener("message", (event) => {
    // At most one view a frame: a page in the background catches up with the last one.
    if (pending === null) requestAnimationFrame(() => {
      const view = JSON.parse(pending);
      pending = null;
      show(view);
      write($("live"), view.every > 1.5 ? `live, every ${Math.round(view.every)} s` : "live");
      $("live").className = "badge good";
    });
    pending = event.data;
  });
  source.addEventListener("error", () => {
    $("live").className = "badge bad";
    const over = source.readyState === EventSource.CLOSED; // refused: with the session, as a rule
    write($("live"), over ? "ended" : "connection lost, trying again");
    $("again").hidden = !over;
  });
  addEventListener("pagehide", () => source.close(), { once: true });
}
connect();
addEventListener("pageshow", (event) => event.persisted && connect()); // back, out of the browser's memory
