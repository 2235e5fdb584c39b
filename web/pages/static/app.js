// The common parts of all desk pages: the menu on small screens, sign-out, local times, dialogs.

import { call, errorOf, SESSION_ENDED, UNREACHABLE, USER_HEADER } from "./api.js";
import { busy, clear, enable, showMessage } from "./forms.js";

const FLASH = "fw-flash";
const FORMAT = { dateStyle: "medium", timeStyle: "short" };
const EXACT = { dateStyle: "medium", timeStyle: "long" };
const RELATIVE = new Intl.RelativeTimeFormat(undefined, { numeric: "always", style: "short" });
const RENEW_MS = 10_000;
const A_DAY_S = 86_400;
const UNITS = [["second", 60], ["minute", 60], ["hour", 24]];

// "3 sec. ago", "in 12 min."; "" for times more than a day away.
function relative(at) {
  let amount = (at - Date.now()) / 1000;
  if (Math.abs(amount) >= A_DAY_S) return "";
  for (const [unit, size] of UNITS) {
    if (Math.abs(amount) < size) return RELATIVE.format(Math.trunc(amount), unit);
    amount /= size;
  }
  return "";
}

// The short name of the user's time zone, such as "CET".
export const zone = () => new Intl.DateTimeFormat(undefined, { timeZoneName: "short" }).formatToParts(new Date()).find((part) => part.type === "timeZoneName").value;

// Show the times below `root` in the user's time zone: those within a day as their distance from
// now. The exact time, with seconds and the zone, is in the title, and as text in elements with
// data-exact.
export function localTimes(root = document) {
  for (const time of root.querySelectorAll("time[datetime]")) {
    const at = new Date(time.dateTime);
    if (Number.isNaN(at.getTime())) continue;
    const exact = at.toLocaleString(undefined, EXACT);
    if (!time.title) time.title = exact;
    const distance = relative(at);
    const text = "exact" in time.dataset ? `${exact}${distance && ` (${distance})`}` : distance || at.toLocaleString(undefined, FORMAT);
    if (time.textContent !== text) time.textContent = text;
  }
}

// Show a message of the page as a whole: wherever the page is scrolled to, while it is fresh.
const FRESH_MS = 10_000;
let freshTimer;
export function report(note, text) {
  const messages = note.parentElement;
  note.textContent = text;
  note.hidden = false;
  messages.classList.add("fresh");
  clearTimeout(freshTimer);
  freshTimer = setTimeout(() => messages.classList.remove("fresh"), FRESH_MS);
}

export const flash = (text) => report(document.getElementById("flash"), text);

// Keep a message for the next page.
export const flashNext = (text) => sessionStorage.setItem(FLASH, text);

// Ask for confirmation: resolves to the typed text, or "" without a field; null for no. `work` runs
// while the dialog is open; its error is shown there, and it can be repeated. Its arguments are the
// typed text and the selected ones of `choices` ({ label, options }). A question that `interrupts`
// the user is not answered by the next key.
export async function ask(question) {
  const dialog = document.getElementById("ask");
  while (dialog.open) await new Promise((resolve) => { dialog.addEventListener("close", resolve, { once: true }); });
  return showQuestion(question);
}

function showQuestion({ title, text = "", ok = "OK", cancel = "Cancel", danger = false, field, value = "", choices, interrupts = false, work }) {
  const dialog = document.getElementById("ask");
  const form = dialog.querySelector("form");
  const button = document.getElementById("ask-ok");
  const input = document.getElementById("ask-value");
  document.getElementById("ask-title").textContent = title;
  document.getElementById("ask-text").textContent = text;
  document.getElementById("ask-text").hidden = !text;
  document.getElementById("ask-field").hidden = !field;
  document.querySelector("#ask-field label").textContent = field?.label ?? "";
  input.type = field?.type ?? "text";
  input.value = value;
  const selection = showChoices(choices);
  button.textContent = ok;
  button.classList.toggle("danger", danger);
  clear(form);
  dialog.returnValue = "cancel";
  const isBusy = () => button.getAttribute("aria-busy") === "true"; // on work that cannot be called back
  document.getElementById("ask-cancel").textContent = cancel;
  document.getElementById("ask-cancel").onclick = () => isBusy() || dialog.close(); // Enter is for the other one
  dialog.showModal();
  (interrupts ? document.getElementById("ask-title") : field ? input : button).focus();
  return new Promise((resolve) => {
    const listeners = new AbortController();
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const answer = field ? input.value : "";
      clear(form);
      busy(button, async () => {
        await work?.(answer, selection());
        dialog.close("ok");
        resolve(answer);
      }).catch((error) => showMessage(form, error.message));
    }, { signal: listeners.signal });
    dialog.addEventListener("cancel", (event) => isBusy() && event.preventDefault(), { signal: listeners.signal });
    dialog.addEventListener("close", () => {
      if (isBusy()) { // browsers let a second Escape pass; the result is to be shown
        dialog.showModal();
        button.focus();
        return;
      }
      listeners.abort();
      resolve(dialog.returnValue === "ok" ? input.value : null);
    }, { signal: listeners.signal });
  });
}

// Show checkboxes in the dialog; return a function that returns the selected ones.
function showChoices(choices) {
  const holder = document.getElementById("ask-choices");
  holder.hidden = !choices?.options.length;
  holder.querySelector("legend").textContent = choices?.label ?? "";
  const boxes = (choices?.options ?? []).map((option) => {
    const label = document.createElement("label");
    const box = Object.assign(document.createElement("input"), { type: "checkbox", value: option });
    label.append(box, ` ${option}`);
    return label;
  });
  holder.querySelector("div").replaceChildren(...boxes);
  return () => [...holder.querySelectorAll("input:checked")].map((box) => box.value);
}

// Copy the text next to the button. Without TLS a browser has no clipboard API: then the text is
// selected, to be copied by hand.
export async function copy(text, button) {
  const label = button.firstChild; // what follows it says which text, to screen readers
  try {
    await navigator.clipboard.writeText(text);
    label.data = "Copied";
  } catch {
    getSelection().selectAllChildren(button.closest(".made").querySelector("code"));
    label.data = "Selected: copy it";
  }
  setTimeout(() => { label.data = "Copy"; }, 4000);
}

// Further fields by which documents are offered.
const TITLE_FIELDS = { Webhook: ["title", "url"], User: ["fullName", "email"] };

// Offer the documents of the linked DocType while the user types into an input with data-target: by
// their names and, with data-titles, their titles.
export function suggest(root = document) {
  for (const input of root.querySelectorAll("input[data-target]:not([list], [readonly])")) {
    const list = document.createElement("datalist");
    list.id = `${input.id}-names`;
    document.body.append(list);
    input.setAttribute("list", list.id);
    let timer;
    let lastRequest = 0;
    const load = async () => {
      lastRequest += 1;
      const request = lastRequest;
      const pattern = input.value.replace(/[\\%_]/g, "\\$&");
      const titles = input.dataset.titles?.split(" ") ?? [];
      const fields = [...new Set(["name", ...titles, ...(TITLE_FIELDS[input.dataset.target] ?? [])])];
      const query = new URLSearchParams({ filters: JSON.stringify([[fields, "like", `%${pattern}%`]]), fields: JSON.stringify(fields), order_by: "name", limit: "20" });
      const response = await call("GET", `/api/resource/${encodeURIComponent(input.dataset.target)}?${query}`).catch(() => ({ data: [] }));
      if (request !== lastRequest) return; // another text was typed meanwhile
      list.replaceChildren(...response.data.map((row) => new Option(fields.map((field) => row[field]).filter(Boolean).slice(1).join(", ") || row.name, row.name)));
    };
    input.addEventListener("focus", load, { once: true });
    input.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(load, 200);
    });
  }
}

// A part of another version of the service is not shown: it would not match the scripts of this page.
// A page that names no version is not the service's.
function keepVersion() {
  const own = document.querySelector("link[rel=stylesheet]").getAttribute("href");
  addEventListener("htmx:beforeSwap", (event) => {
    const { shouldSwap, xhr } = event.detail;
    const assets = xhr.getResponseHeader("X-FW-Assets");
    if (!shouldSwap || own.startsWith(`${assets}/`)) return;
    event.detail.shouldSwap = false;
    if (assets === null) showProblem(UNREACHABLE.message, true); // the sign-in page of a network, for example
    else showProblem("The service has been updated. Reload the page.");
  });
}

// A part that is reloaded periodically is not replaced while the pointer is pressed on it, because
// the click would be lost. The next reload shows the changes.
function keepPressed() {
  let pressed = null;
  addEventListener("pointerdown", (event) => { pressed = event.target; }, true);
  for (const end of ["pointerup", "pointercancel"]) addEventListener(end, () => { pressed = null; }, true);
  addEventListener("htmx:beforeSwap", (event) => {
    const { elt, target } = event.detail;
    if (elt === target && target.contains(pressed)) event.detail.shouldSwap = false;
  });
}

// A part that is reloaded periodically is replaced only if it has changed, because what is selected,
// focused and scrolled in it would be lost. In a changed one the same element has the focus.
function keepPlace() {
  const lastResponses = new Map();
  const focusable = "a[href], button, summary, [tabindex]";
  const nameOf = (each) => `${each.tagName} ${each.getAttribute("aria-label") ?? each.textContent.trim()}`;
  let focused = null;
  addEventListener("htmx:beforeSwap", (event) => {
    const { elt, target, xhr, shouldSwap } = event.detail;
    focused = null;
    if (elt !== target || !shouldSwap) return;
    if (lastResponses.get(target.id) === xhr.responseText) {
      event.detail.shouldSwap = false;
      hideProblem();
      return;
    }
    lastResponses.set(target.id, xhr.responseText);
    const { activeElement } = document;
    const isPolled = target.matches("[hx-trigger^=every]"); // or else by an action, which moves the focus itself
    if (target.contains(activeElement)) focused = { part: target.id, name: nameOf(activeElement), isPolled };
  });
  addEventListener("htmx:afterSwap", () => {
    if (!focused || document.activeElement !== document.body) return;
    const part = document.getElementById(focused.part);
    const same = [...part?.querySelectorAll(focusable) ?? []].find((each) => nameOf(each) === focused.name);
    const section = focused.isPolled && (part?.matches("section") ? part : part?.querySelector("section"));
    const near = same ?? (section || null); // a button may have gone
    if (near && !same) near.tabIndex = -1;
    near?.focus({ preventScroll: true });
    focused = null;
  });
}

// Unfolded details stay unfolded in the part that replaces them.
function keepUnfolded() {
  let open = [];
  addEventListener("htmx:beforeSwap", ({ detail: { target } }) => {
    open = [...target.querySelectorAll("details[id][open]")].map((each) => each.id);
  });
  addEventListener("htmx:afterSwap", () => {
    for (const id of open) document.getElementById(id)?.setAttribute("open", "");
    open = [];
  });
}

// A shadow shows that a table continues beyond an edge.
const observedBoxes = new WeakSet();
function shades() {
  for (const box of document.querySelectorAll(".scroll")) {
    if (observedBoxes.has(box)) continue;
    observedBoxes.add(box);
    const update = () => {
      box.classList.toggle("more-before", box.scrollLeft > 1);
      box.classList.toggle("more-after", box.scrollLeft + box.clientWidth < box.scrollWidth - 1);
    };
    box.addEventListener("scroll", update, { passive: true });
    new ResizeObserver(update).observe(box);
  }
}

// Show a message until the next one; one of a part (`ofPart`) only until a part is loaded again.
export function showProblem(text, ofPart = false) {
  const note = document.getElementById("trouble");
  note.toggleAttribute("data-of-part", ofPart);
  if (note.textContent !== text || note.hidden) report(note, text); // read out once
}

function hideProblem() {
  const note = document.getElementById("trouble");
  if (note.hasAttribute("data-of-part")) note.hidden = true;
}

// Functions that return whether something is lost if the page is left now.
const lossChecks = new Set();
const isInputLost = () => [...lossChecks].some((losesInput) => losesInput());
const preventUnload = (event) => { if (isInputLost()) event.preventDefault(); };

// Ask before the page is left while `losesInput` returns true; returns a function that ends this.
export function warnBeforeLeaving(losesInput) {
  lossChecks.add(losesInput);
  addEventListener("beforeunload", preventUnload);
  return () => lossChecks.delete(losesInput);
}

async function signOut() {
  await call("POST", "/api/logout", {}).catch((error) => {
    if (error.status !== 401) throw error; // the session goes on
  });
  lossChecks.clear(); // the user has confirmed it
  location.assign("/login");
}

// If a part of the page could not be loaded, the old one stays, with a message.
function reportFailedRequests() {
  addEventListener("htmx:configRequest", ({ detail: { headers } }) => Object.assign(headers, USER_HEADER));
  addEventListener("htmx:beforeSwap", (event) => {
    const { xhr } = event.detail;
    if (!xhr.responseURL || new URL(xhr.responseURL).pathname !== "/login") return;
    event.detail.shouldSwap = false; // the sign-in page holds no such part
    showProblem(SESSION_ENDED, true);
  });
  addEventListener("htmx:responseError", ({ detail: { xhr, elt } }) => {
    showProblem(messageOf(xhr), true);
    if ((xhr.status === 403 || xhr.status === 404) && elt.matches("[hx-trigger^=every]")) stopPolling(elt);
  });
  addEventListener("htmx:sendError", () => showProblem(UNREACHABLE.message, true));
  addEventListener("htmx:afterSwap", hideProblem);
}

function messageOf({ status, responseText }) {
  let content = null;
  try {
    content = JSON.parse(responseText);
  } catch { /* a page */ }
  return errorOf(status, content).message;
}

// A part that no longer exists is replaced by a copy that is not reloaded.
function stopPolling(part) {
  const replacement = part.cloneNode(true);
  for (const name of replacement.getAttributeNames()) if (name.startsWith("hx-")) replacement.removeAttribute(name);
  part.replaceWith(replacement);
}

function menu() {
  const button = document.getElementById("menu");
  const navigation = document.getElementById("navigation");
  button.hidden = false;
  document.body.classList.add("scripted");
  button.addEventListener("click", () => {
    const open = button.getAttribute("aria-expanded") !== "true";
    button.setAttribute("aria-expanded", String(open));
    navigation.classList.toggle("open", open);
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || button.getAttribute("aria-expanded") !== "true") return;
    button.click();
    button.focus();
  });
}

// Words that are dictated to a page act as keys: those without Ctrl can be switched off.
const KEYS_OFF = "fw-single-keys-off";
export const hasSingleKeys = () => localStorage.getItem(KEYS_OFF) === null;
export function setSingleKeys(enabled) {
  if (enabled) localStorage.removeItem(KEYS_OFF);
  else localStorage.setItem(KEYS_OFF, "1");
}

// `/` searches, `j` and `k` move through the rows of a list, `?` shows the keys; not while typing.
function keys() {
  const rows = () => [...document.querySelectorAll("main table.list tbody th a")];
  const step = (by) => {
    const all = rows();
    const at = all.findIndex((link) => link.closest("tr").contains(document.activeElement));
    all[at < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(Math.max(at + by, 0), all.length - 1)]?.focus();
  };
  const actions = {
    "/": () => document.getElementById("find").focus(),
    "?": () => document.getElementById("keys").showModal(),
    j: () => step(1),
    k: () => step(-1),
  };
  document.addEventListener("keydown", (event) => {
    const isIgnored = event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input:not([type=checkbox]), select, textarea, dialog[open]");
    if (isIgnored || !Object.hasOwn(actions, event.key) || !hasSingleKeys()) return;
    event.preventDefault();
    actions[event.key]();
  });
}

if (document.body.classList.contains("desk")) {
  menu();
  keys();
  localTimes();
  setInterval(localTimes, RENEW_MS);
  suggest();
  keepVersion();
  keepPressed();
  keepUnfolded();
  shades();
  reportFailedRequests();
  keepPlace();
  const message = sessionStorage.getItem(FLASH);
  sessionStorage.removeItem(FLASH);
  if (message) flash(message);
  document.addEventListener("htmx:afterSwap", () => {
    localTimes();
    shades();
  });
  document.getElementById("sign-out").addEventListener("click", ({ currentTarget }) => {
    // The browser would ask when nothing can be saved any more.
    if (!isInputLost()) busy(currentTarget, signOut).catch((error) => showProblem(error.message));
    else ask({ title: "Sign out without saving?", text: "The changes on this page, and its actions in progress, are lost.", ok: "Sign out", danger: true, work: signOut });
  });
  enable("app");
  addEventListener("load", () => { // the buttons of a module that was not loaded stay disabled
    if (globalThis.htmx === undefined || document.querySelector("button[data-scripted]:disabled")) showProblem("A script of this page could not be loaded. Reload the page.");
  });
}
