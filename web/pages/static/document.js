// A document's form: changes are sent to the JSON API, which validates them.

import { call, documentPath } from "./api.js";
import { ask, copy, flashNext, suggest, warnBeforeLeaving } from "./app.js";
import { addRevealButtons, busy, CHANGED, enable, isChanged, isExact, isFocusKept, isValidInBrowser, onShownVersion, onSubmit, showFieldError, showMessage } from "./forms.js";
import { guardNumbers } from "./numbers.js";

const form = document.getElementById("document");
const { doctype, name, list } = form.dataset;
// The version; a document that SQL has inserted may have none.
const version = () => (form.dataset.modified ? { modified: form.dataset.modified } : {});
const pad = (number) => String(number).padStart(2, "0");

// Conversion of values between inputs and JSON.
function local(utc) {
  const at = new Date(utc);
  return `${String(at.getFullYear()).padStart(4, "0")}-${pad(at.getMonth() + 1)}-${pad(at.getDate())}T${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}`;
}

// A time that is none yet is a change, too; it is not sent.
function instant(text) {
  const at = new Date(text);
  return Number.isNaN(at.getTime()) ? text : at.toISOString();
}

// Text that is no JSON yet is a change, too; it is not sent.
function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

// An unchanged text is sent as received: inputs make LF of every line break.
const asReceived = (text, served) => (text === served.replace(/\r\n?/g, "\n") ? served : text);

function valueOf(input) {
  const text = input.value;
  switch (input.dataset.kind) {
    case "check": return input.checked ? 1 : 0;
    case "number": return text === "" ? null : Number(text);
    // An unchanged time is sent as received: the input has no milliseconds, and no repeated hour.
    case "datetime": return text === "" ? null : text === input.dataset.shown ? input.dataset.utc : instant(text);
    case "secret": return text === "" ? null : text; // null keeps the stored value
    case "json": return text.trim() === "" ? null : parsed(text);
    case "choice": return text;
    case "date": case "link": return text === "" ? null : text;
    default: return asReceived(text, input.defaultValue);
  }
}

function rowsOf(table) {
  return [...table.querySelectorAll("tbody tr")].map((row) => {
    const values = row.dataset.row ? { name: row.dataset.row } : {};
    for (const input of row.querySelectorAll("[data-kind]")) values[input.name] = valueOf(input);
    return values;
  });
}

// The values that the form sends: applicable fields, and typed secrets.
function collect(form) {
  const values = {};
  for (const input of form.querySelectorAll("[data-kind]")) {
    if (input.closest("[data-table]") || input.readOnly || input.disabled) continue;
    if (input.dataset.kind === "secret") {
      if (input.value !== "") values[input.name] = input.value;
      continue;
    }
    if (input.closest("[data-shown-when][hidden]")) values[input.name] = input.dataset.kind === "check" ? 0 : null;
    else values[input.name] = valueOf(input);
  }
  for (const table of form.querySelectorAll("[data-table][data-locked=no]")) values[table.dataset.table] = rowsOf(table);
  return values;
}

const same = (one, other) => JSON.stringify(one) === JSON.stringify(other) || (one ?? "") === (other ?? "");
const isEmpty = (value) => value === null || value === undefined || value === "" || (Array.isArray(value) && !value.length);
const pick = (values, predicate) => Object.fromEntries(Object.entries(values).filter(predicate));

// Why a text would not be stored as it is typed; "" if it would: of two values with one name the
// browser keeps the last, of a number beyond its largest it makes null, and of a long one another.
function faultOf(text) {
  let names = -1; // but for the object that holds all
  let isFinite = true;
  function look(key, value) {
    if (!Array.isArray(this)) names += 1;
    if (typeof value === "number" && !Number.isFinite(value)) isFinite = false;
    return value;
  }
  try {
    JSON.parse(text, look);
  } catch {
    return "This is not JSON.";
  }
  const numbers = text.replace(/"(?:[^"\\]|\\.)*"/g, "").match(/-?\d[\d.eE+-]*/g) ?? [];
  if (!isFinite || !numbers.every(isExact)) return "A number in this JSON is too large.";
  const typed = text.match(/"(?:[^"\\]|\\.)*"(?:\s*:)?/g) ?? [];
  return typed.filter((each) => each.endsWith(":")).length === names ? "" : "A name occurs twice in an object of this JSON.";
}

function isValidJson() {
  for (const input of form.querySelectorAll("[data-kind=json]")) {
    if (input.value === input.defaultValue) continue; // of SQL, perhaps; it is not sent
    const error = faultOf(input.value.trim() || "null");
    if (!error) continue;
    showFieldError(input, error);
    return false;
  }
  return true;
}

// A changed table is sent whole: a value that nobody changed must not become another one, either.
function keepsUnchangedCells() {
  const sent = changes();
  for (const table of form.querySelectorAll("[data-table]")) {
    if (!(table.dataset.table in sent)) continue;
    for (const input of table.querySelectorAll("[data-kind=json], [data-kind=number]")) {
      if (input.value !== input.defaultValue || keepsValue(input)) continue;
      showFieldError(input, "The browser would change this value: edit this table by the API.");
      return false;
    }
  }
  return true;
}

function keepsValue({ value, dataset }) {
  if (dataset.kind === "number") return isExact(value);
  return typeof parsed(value) === "string" || !faultOf(value.trim() || "null"); // no JSON is sent as it is
}

let initial;
let leaving = false;
const changes = () => pick(collect(form), ([key, value]) => !same(value, initial[key]));
const leave = (path, text) => {
  leaving = true;
  form.inert = true; // the next page would not have what is typed until it arrives
  if (text) flashNext(form.dataset.note ? `${text} ${form.dataset.note}` : text);
  location.assign(path);
};

async function save() {
  if (leaving) return; // it is done: the next page is on its way
  if (!isValidInBrowser(form) || !isValidJson() || !keepsUnchangedCells()) return;
  const focused = document.activeElement;
  form.inert = true; // what is typed now would not be sent
  try {
    await send();
  } finally {
    form.inert = leaving;
    if (!leaving && form.contains(focused) && isFocusKept(focused)) focused.focus(); // or else it is used elsewhere
  }
}

async function send() {
  if (name === undefined) {
    // Emptied fields are sent too: omitted ones would get their defaults again.
    const body = pick(collect(form), ([key, value]) => !isEmpty(value) || !isEmpty(initial[key]));
    const created = await create(body);
    if (created) leave(`${list}/${encodeURIComponent(created.name)}`, "Created.");
    return;
  }
  try {
    await call("PUT", documentPath(doctype, name), { ...changes(), ...version() });
  } catch (error) {
    if (error.status === 404 || error.extra?.reason === "deleted") {
      showMessage(form, "This document has been deleted or renamed meanwhile. Your input is kept here; copy what you need before you leave this page.");
      return;
    }
    if (!isChanged(error)) throw error;
    showMessage(form, `${CHANGED} Open it in another tab to see what changed; your input is kept here. Reload to start from the new version.`);
    return;
  }
  leave(location.pathname, "Saved.");
}

// Without a response the document may exist: another try could create a second one.
async function create(body) {
  try {
    const { data } = await call("POST", documentPath(doctype), body);
    return data;
  } catch (error) {
    if (error.status !== 0) throw error;
    showMessage(form, "The service did not answer. The document may have been created: look for it in the list, in another tab, before you try again.");
    return null;
  }
}

// What else a deletion does, in the words of the command line.
const DELETION = {
  User: "Its sessions, API keys, links and access scopes are deleted with it. ",
  Webhook: "Its deliveries are kept, and waiting deliveries fail. ",
};
// What a rename of a Webhook costs: it writes to all of its deliveries in one transaction.
const RENAME = {
  Webhook: "Its deliveries get the new name too. If there are hundreds of thousands, other writes, such as sign-ins, may wait for seconds: change its title instead. ",
};
const ACTS = {
  submit: { title: "Submit this document?", text: "After that most of its fields can no longer be changed.", ok: "Submit", path: "/submit", done: "Submitted." },
  cancel: { title: "Cancel this document?", text: "It stays readable, but can no longer be changed.", ok: "Cancel document", danger: true, path: "/cancel", done: "Cancelled." },
  delete: { title: "Delete this document?", text: `${DELETION[doctype] ?? ""}This cannot be undone.`, ok: "Delete", danger: true },
  rename: { title: "Rename this document", text: `${RENAME[doctype] ?? ""}Links to it are updated.`, ok: "Rename", field: { label: "New name" }, value: name },
};

// Carry out an action on the version that is shown; return the path of the next page if it is another.
async function carryOut(kind, typed) {
  const path = documentPath(doctype, name);
  if (kind === "delete") {
    await call("DELETE", `${path}?${new URLSearchParams(version())}`);
    return list;
  }
  if (kind === "rename") {
    const renamed = await call("POST", `${path}/rename`, { name: typed, ...version() });
    return `${list}/${encodeURIComponent(renamed.data.name)}`;
  }
  await call("POST", path + ACTS[kind].path, version());
  return undefined;
}

async function act(kind) {
  if (leaving) return;
  if (kind !== "delete" && Object.keys(changes()).length) {
    showMessage(form, "Save your changes first.");
    return;
  }
  const action = ACTS[kind];
  let to = location.pathname;
  const answer = await ask({
    ...action,
    work: async (typed) => { to = await onShownVersion(() => carryOut(kind, typed)) ?? to; },
  });
  if (answer !== null) leave(to, kind === "delete" ? "Deleted." : kind === "rename" ? "Renamed." : action.done);
}

// Fields that only apply for one value of another field.
function applying(form) {
  for (const holder of form.querySelectorAll("[data-shown-when]")) {
    const [field, value] = holder.dataset.shownWhen.split("=");
    holder.hidden = form.elements.namedItem(field)?.value !== value;
  }
}

function tables() {
  for (const table of form.querySelectorAll("[data-table]")) {
    const rows = table.querySelector("tbody");
    let number = rows.children.length;
    table.querySelector("[data-add]")?.addEventListener("click", () => {
      const row = table.querySelector("template").content.firstElementChild.cloneNode(true);
      number += 1;
      for (const input of row.querySelectorAll("[id]")) input.id = input.id.replace("-new-", `-${number}-`);
      enable("document", row);
      rows.append(row);
      table.querySelector("[data-none]")?.remove();
      suggest(row);
      row.querySelector("[data-kind]")?.focus();
    });
    table.addEventListener("click", (event) => {
      const button = event.target.closest("[data-remove]");
      if (!button) return;
      const row = button.closest("tr");
      const next = row.nextElementSibling ?? row.previousElementSibling;
      row.remove();
      (next?.querySelector("[data-remove]") ?? table.querySelector("[data-add]")).focus();
    });
  }
}

function secrets() {
  for (const holder of form.querySelectorAll("[data-secret]")) {
    const input = holder.querySelector("input");
    if (!input) continue;
    const panel = holder.querySelector("[data-made]");
    holder.querySelector("[data-change]")?.addEventListener("click", (event) => {
      holder.querySelector(".secret-input").hidden = false;
      event.target.hidden = true;
      input.focus();
    });
    holder.querySelector("[data-make]")?.addEventListener("click", () => {
      const bytes = crypto.getRandomValues(new Uint8Array(32));
      input.value = `whsec_${btoa(String.fromCharCode(...bytes))}`;
      input.dispatchEvent(new Event("input", { bubbles: true })); // it is not missing any more
      panel.querySelector("[data-text]").textContent = input.value;
      panel.hidden = false;
      panel.querySelector("[data-copy]").focus();
    });
    panel?.querySelector("[data-copy]").addEventListener("click", (event) => copy(input.value, event.target));
    input.addEventListener("input", () => { panel.hidden = true; });
  }
}

for (const input of form.querySelectorAll("[data-utc]:not([data-utc=''])")) {
  const served = input.cloneNode();
  served.value = local(input.dataset.utc); // as the browser writes it
  input.dataset.shown = input.defaultValue = served.value;
}
applying(form);
tables();
secrets();
addRevealButtons(form);
guardNumbers(form);
// The values as served: what the user changed while the scripts were loading is a change.
const served = form.cloneNode(true);
served.reset();
applying(served);
initial = collect(served);
form.addEventListener("change", () => applying(form));
onSubmit(form, save);
for (const button of document.querySelectorAll("[data-act]")) {
  button.addEventListener("click", () => busy(button, () => act(button.dataset.act)));
}
addEventListener("pageshow", (event) => { // back again, out of the browser's memory
  if (event.persisted) leaving = form.inert = false;
});
warnBeforeLeaving(() => !leaving && Object.keys(changes()).length > 0);
// With Caps Lock the key is "S"; a layout of other letters has it in the place of the S.
const isS = ({ key, code }) => key.toLowerCase() === "s" || (code === "KeyS" && !/^[a-z]$/i.test(key));
document.addEventListener("keydown", (event) => {
  if (isS(event) && (event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey) {
    event.preventDefault();
    const button = document.querySelector("button[form=document]");
    if (button && !document.querySelector("dialog[open]")) form.requestSubmit(button);
  }
});
enable("document");
