// Shared by all forms: messages next to fields, waiting buttons, shown passwords.

import { ApiError } from "./api.js";

const MINUTE_MS = 60_000;

export function clear(form) {
  const message = form.querySelector(".message[role=alert]");
  if (message) message.hidden = true;
  for (const note of form.querySelectorAll(".field-error")) note.remove();
  for (const input of form.querySelectorAll("[aria-invalid]")) clearFieldError(input);
}

function clearFieldError(input) {
  document.getElementById(`${input.id}-error`)?.remove();
  input.removeAttribute("aria-invalid");
  describeBy(input, `${input.id}-error`, false);
}

// In a long form the message is brought into view, unless the user is elsewhere by now.
export function showMessage(form, text, mayScroll = true) {
  const message = form.querySelector(".message[role=alert]");
  message.textContent = text;
  message.hidden = false;
  if (mayScroll) message.scrollIntoView({ block: "nearest" });
}

// Whether the focus is where it was when an action began, or on no control (a click on an inert
// form gives it to the part around): then the end of the action may move it.
export const isFocusKept = (focused) => document.activeElement === document.body || document.activeElement.contains(focused);

// Run `work` while nothing can be typed into the form: it would not be sent. The focus returns,
// unless the user has moved it out of the form.
export async function withInertForm(form, work) {
  const focused = document.activeElement;
  form.inert = true;
  try {
    return await work();
  } finally {
    form.inert = false;
    if (form.contains(focused) && isFocusKept(focused)) focused.focus();
  }
}

// The input of the field that an error names, in a row of a table if it names one.
function fieldOf(form, { field, extra }) {
  if (!field) return null;
  if (!extra.table) return [...form.elements].find((each) => each.name === field && !each.closest("[data-table]")) ?? null;
  const row = form.querySelectorAll(`[data-table="${CSS.escape(extra.table)}"] tbody > tr`)[extra.row - 1];
  return row?.querySelector(`[name="${CSS.escape(field)}"]`) ?? null;
}

// Show an error next to its field, or else above the form.
function showError(form, error, mayFocus) {
  if (!(error instanceof ApiError)) throw error;
  const input = fieldOf(form, error);
  if (input?.id && input.type !== "hidden") showFieldError(input, error.message, mayFocus);
  else showMessage(form, error.message, mayFocus);
}

// Whether a call was refused because another version of the document is stored.
export const isChanged = (error) => error instanceof ApiError && error.status === 409 && error.extra.reason === "changed";

// The other version may be of another user, of another tab, or of this page, if the response was lost.
export const CHANGED = "This document has changed since this page was opened.";

// Run an action on the version that the page shows.
export async function onShownVersion(work) {
  try {
    return await work();
  } catch (error) {
    if (!isChanged(error)) throw error;
    throw new Error(`${CHANGED} Reload the page to see what changed.`);
  }
}

export function showFieldError(input, text, mayFocus = true) {
  const note = document.createElement("p");
  note.className = "field-error";
  note.id = `${input.id}-error`;
  note.textContent = text;
  (input.closest(".field") ?? input.parentElement).append(note);
  input.setAttribute("aria-invalid", "true");
  describeBy(input, note.id, true);
  if (mayFocus) input.focus();
  if (document.activeElement !== input) { // the focus would have read it out, and scrolled to it
    note.setAttribute("role", "alert");
    if (mayFocus) note.scrollIntoView({ block: "nearest" });
  }
  input.addEventListener("input", () => clearFieldError(input), { once: true }); // being mended
}

// The label of a field.
function labelOf(input) {
  const label = input.labels?.[0] ?? document.getElementById(input.getAttribute("aria-labelledby"));
  return label?.textContent.trim() || input.getAttribute("aria-label") || "This";
}

// Mark every empty required field; return whether there was none.
export function markMissing(form) {
  const empty = [...form.querySelectorAll("[required]")]
    .filter((input) => !input.closest("[hidden]") && !input.disabled && input.value === "");
  for (const input of empty.reverse()) showFieldError(input, `${labelOf(input)} is missing.`); // the first has the focus
  return empty.length === 0;
}

// Errors that only the browser detects: an invalid number or date, or a value out of its range.
export function isValidInBrowser(form) {
  for (const input of form.querySelectorAll("input, select, textarea")) {
    if (input.closest("[hidden]") || input.validity.valueMissing) continue;
    const message = input.validity.valid ? timeErrorOf(input) || numberErrorOf(input) : input.validationMessage;
    if (!message) continue;
    showFieldError(input, message);
    return false;
  }
  return true;
}

// Whether the browser keeps every digit of a number: of a whole one beyond 2^53 it may change the last.
export const isExact = (text) => !/^-?\d+$/.test(text) || BigInt(text) === BigInt(Number(text));

function numberErrorOf(input) {
  const isTyped = input.type === "number" && input.value !== input.defaultValue;
  return isTyped && !isExact(input.value) ? "The number must be between -2^53 and 2^53." : "";
}

// A browser takes years of six digits, of which no time can be made, and makes another time of one
// that the clocks skip.
function timeErrorOf(input) {
  if (input.type !== "datetime-local" || !input.value || input.value === input.dataset.shown) return "";
  const at = new Date(input.value);
  if (Number.isNaN(at.getTime())) return "The year must be at most 9999.";
  const local = at.getTime() - at.getTimezoneOffset() * MINUTE_MS; // before 1900 offsets have seconds
  return Math.abs(local - input.valueAsNumber) > MINUTE_MS ? "This time does not exist: the clocks are put forward. Choose another time." : "";
}

// Wait for the next page; ends if the user comes back to this one out of the browser's memory.
export const nextPage = () => new Promise((resolve) => { addEventListener("pageshow", resolve, { once: true }); });

// Run `work` with the button waiting; a second click does nothing meanwhile.
export async function busy(button, work) {
  if (button.getAttribute("aria-busy") === "true") return undefined;
  button.setAttribute("aria-busy", "true");
  try {
    return await work();
  } finally {
    button.removeAttribute("aria-busy");
  }
}

// On submit: clear messages, check required fields, run `work`, show its error.
export function onSubmit(form, work) {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const button = event.submitter ?? form.querySelector("[type=submit]");
    if (!button) return; // Enter in the only field of a form that cannot be sent
    clear(form);
    if (!markMissing(form)) return;
    const focused = document.activeElement;
    busy(button, work).catch((error) => showError(form, error, isFocusKept(focused)));
  });
}

// Enable the buttons of a script: until it is loaded they are disabled, so that no click is lost
// and no form is sent without it.
export function enable(module, root = document) {
  for (const button of root.querySelectorAll(`button[data-scripted="${module}"]`)) button.disabled = false;
}

export function switchView(from, to) {
  from.hidden = true;
  to.hidden = false;
  to.querySelector("h1")?.focus();
}

function describeBy(input, id, add) {
  const ids = new Set((input.getAttribute("aria-describedby") ?? "").split(" ").filter(Boolean));
  if (add) ids.add(id);
  else ids.delete(id);
  if (ids.size) input.setAttribute("aria-describedby", [...ids].join(" "));
  else input.removeAttribute("aria-describedby");
}

export function addRevealButtons(root = document) {
  for (const input of root.querySelectorAll("input[data-reveal]")) {
    input.removeAttribute("data-reveal");
    const label = root.querySelector(`label[for="${CSS.escape(input.id)}"]`);
    const button = document.createElement("button");
    button.type = "button";
    button.className = "reveal";
    button.textContent = "Show";
    button.setAttribute("aria-label", `Show ${label ? label.textContent.trim().toLowerCase() : "it"}`);
    button.setAttribute("aria-pressed", "false");
    button.addEventListener("click", () => {
      const visible = input.type === "password";
      input.type = visible ? "text" : "password";
      button.textContent = visible ? "Hide" : "Show";
      button.setAttribute("aria-pressed", String(visible));
    });
    const holder = document.createElement("div");
    holder.className = "with-reveal";
    const focused = input === document.activeElement;
    const { selectionStart, selectionEnd } = input;
    input.replaceWith(holder);
    holder.append(input, button);
    if (!focused) continue;
    input.focus(); // moved inputs lose it, with what is typed on
    input.setSelectionRange(selectionStart, selectionEnd);
  }
}
