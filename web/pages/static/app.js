// What every page of the desk has: the menu on small screens, sign-out, local times, questions.

import { call, ENDED, UNREACHABLE } from "./api.js";
import { busy, clear, enable, say } from "./forms.js";

const FLASH = "fw-flash";
const FORMAT = { dateStyle: "medium", timeStyle: "short" };
const EXACT = { dateStyle: "medium", timeStyle: "long" };

// Show the times below `root` in the reader's own zone; the exact one stands in the title. Those
// with data-exact have seconds, and name the zone.
export function localTimes(root = document) {
  for (const time of root.querySelectorAll("time[datetime]:not([title])")) {
    const at = new Date(time.dateTime);
    if (Number.isNaN(at.getTime())) continue;
    time.title = time.dateTime;
    time.textContent = at.toLocaleString(undefined, "exact" in time.dataset ? EXACT : FORMAT);
  }
}

export function flash(text) {
  const note = document.getElementById("flash");
  note.textContent = text;
  note.hidden = false;
}

// Leave a message to the page that comes next.
export const flashNext = (text) => sessionStorage.setItem(FLASH, text);

// Ask before something happens: resolves to the typed text, or "" without a field; null for no.
// `work` runs while the question stands; its error is shown there, and it can be tried again. It is
// given the typed text, and which of `choices` ({ label, options }) are ticked.
export function ask({ title, text = "", ok = "OK", cancel = "Cancel", danger = false, field, value = "", choices, work }) {
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
  const chosen = offer(choices);
  button.textContent = ok;
  button.classList.toggle("danger", danger);
  clear(form);
  dialog.returnValue = "cancel";
  const waits = () => button.getAttribute("aria-busy") === "true"; // on work that can't be called back
  document.getElementById("ask-cancel").textContent = cancel;
  document.getElementById("ask-cancel").onclick = () => waits() || dialog.close(); // Enter is for the other one
  dialog.showModal();
  (field ? input : button).focus();
  return new Promise((resolve) => {
    const done = new AbortController();
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const typed = field ? input.value : "";
      clear(form);
      busy(button, async () => {
        await work?.(typed, chosen());
        dialog.close("ok");
        resolve(typed);
      }).catch((error) => say(form, error.message));
    }, { signal: done.signal });
    dialog.addEventListener("cancel", (event) => waits() && event.preventDefault(), { signal: done.signal });
    dialog.addEventListener("close", () => {
      done.abort();
      resolve(dialog.returnValue === "ok" ? input.value : null);
    }, { signal: done.signal });
  });
}

// Show boxes to tick in the question; return a function that tells which are ticked.
function offer(choices) {
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

// Copy what stands beside the button. Without TLS a browser gives no clipboard, and asks nobody:
// then the text is selected, to be copied by hand.
export async function copy(text, button) {
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(button.closest(".made").querySelector("code"));
    button.textContent = "Selected: copy it";
  }
  setTimeout(() => { button.textContent = "Copy"; }, 4000);
}

// Offer the names of the linked DocType while one types into an input with data-target.
export function suggest(root = document) {
  for (const input of root.querySelectorAll("input[data-target]:not([list], [readonly])")) {
    const list = document.createElement("datalist");
    list.id = `${input.id}-names`;
    document.body.append(list);
    input.setAttribute("list", list.id);
    let timer;
    const load = async () => {
      const typed = input.value.replace(/[\\%_]/g, "\\$&");
      const query = new URLSearchParams({ filters: JSON.stringify([["name", "like", `%${typed}%`]]), fields: '["name"]', order_by: "name", limit: "20" });
      const found = await call("GET", `/api/resource/${encodeURIComponent(input.dataset.target)}?${query}`).catch(() => ({ data: [] }));
      list.replaceChildren(...found.data.map((row) => new Option(row.name, row.name)));
    };
    input.addEventListener("focus", load, { once: true });
    input.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(load, 200);
    });
  }
}

// What is asked for again on its own is not exchanged below a pressed pointer: the click would be
// lost. The next round shows what is new.
function keepPressed() {
  let pressed = null;
  addEventListener("pointerdown", (event) => { pressed = event.target; }, true);
  for (const end of ["pointerup", "pointercancel"]) addEventListener(end, () => { pressed = null; }, true);
  addEventListener("htmx:beforeSwap", (event) => {
    const { elt, target } = event.detail;
    if (elt === target && target.contains(pressed)) event.detail.shouldSwap = false;
  });
}

// What was unfolded stays so in the part that takes its place.
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

// A shade shows that a table goes on beyond an edge.
function shades(root = document) {
  for (const box of root.querySelectorAll(".scroll")) {
    const tell = () => {
      box.classList.toggle("more-before", box.scrollLeft > 1);
      box.classList.toggle("more-after", box.scrollLeft + box.clientWidth < box.scrollWidth - 1);
    };
    box.addEventListener("scroll", tell, { passive: true });
    new ResizeObserver(tell).observe(box);
  }
}

// A part of the page could not be loaded: the old one stays, with a message.
function showTrouble() {
  const note = document.getElementById("trouble");
  const tell = (text) => {
    if (note.textContent !== text || note.hidden) note.textContent = text; // read out once
    note.hidden = false;
  };
  addEventListener("htmx:beforeSwap", (event) => {
    const { xhr } = event.detail;
    if (!xhr.responseURL || new URL(xhr.responseURL).pathname !== "/login") return;
    event.detail.shouldSwap = false; // the sign-in page holds no such part
    tell(ENDED);
  });
  addEventListener("htmx:responseError", ({ detail: { xhr, elt } }) => {
    tell(messageOf(xhr));
    if ((xhr.status === 403 || xhr.status === 404) && elt.matches("[hx-trigger^=every]")) stopAsking(elt);
  });
  addEventListener("htmx:sendError", () => tell(UNREACHABLE.message));
  addEventListener("htmx:afterSwap", () => { note.hidden = true; });
}

function messageOf(xhr) {
  try {
    return JSON.parse(xhr.responseText).error.message;
  } catch {
    return `The service answered ${xhr.status}. Try again.`;
  }
}

// What is gone does not come back: a likeness that asks for nothing takes the part's place.
function stopAsking(part) {
  const still = part.cloneNode(true);
  for (const name of still.getAttributeNames()) if (name.startsWith("hx-")) still.removeAttribute(name);
  part.replaceWith(still);
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
}

if (document.body.classList.contains("desk")) {
  menu();
  localTimes();
  suggest();
  keepPressed();
  keepUnfolded();
  shades();
  showTrouble();
  const left = sessionStorage.getItem(FLASH);
  sessionStorage.removeItem(FLASH);
  if (left) flash(left);
  document.addEventListener("htmx:afterSwap", () => {
    localTimes();
    shades();
  });
  document.getElementById("sign-out").addEventListener("click", async () => {
    await call("POST", "/api/logout", {}).catch(() => null);
    location.assign("/login");
  });
  enable("app");
}
