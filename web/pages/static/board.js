// Tables that follow the service: only changes are written to the page.

import { number } from "./words.js";

export const formatNumber = (value) => number.format(Math.round(value * 10) / 10);
const today = (at) => at.toDateString() === new Date().toDateString();
export const formatTime = (ms) => {
  const at = new Date(ms);
  return today(at) ? at.toLocaleTimeString() : at.toLocaleString(undefined, { dateStyle: "short", timeStyle: "short" });
};
export const path = (doctype, name) => `/app/${encodeURIComponent(doctype)}/${encodeURIComponent(name)}`;

export const write = (node, text) => {
  if (node.textContent !== text) node.textContent = text;
};

// A cell is a text, or {words} for one that may be long, {badge, tone}, {link, text}, {number},
// {acts: [[label, act, name], …]}.
function fill(cell, value) {
  if (typeof value !== "object") {
    write(cell, String(value));
    return;
  }
  if (value.words !== undefined) {
    const text = cell.firstElementChild ?? cell.appendChild(element("span", "", "clamped"));
    write(text, value.words);
    text.title = value.words; // of a long one the first lines are shown
    return;
  }
  if (value.number !== undefined) {
    cell.className = "is-number";
    write(cell, `${formatNumber(value.number)}${value.more ? " or more" : ""}`);
    return;
  }
  const key = JSON.stringify(value);
  if (cell.dataset.key === key) return;
  cell.dataset.key = key;
  const { activeElement } = document;
  const hadFocus = cell.contains(activeElement);
  const isSingle = cell.children.length === 1;
  cell.replaceChildren(...nodesOf(value));
  if (hadFocus) focusAction(cell, activeElement.dataset.act, isSingle);
}

// Focus the same action of a cell, or the one that takes the place of a single one (Pause, Resume),
// but never another action: a key press would run it.
export function focusAction(cell, act, isSingle) {
  const sameAction = cell.querySelector(act ? `[data-act="${act}"]` : "a");
  const successor = isSingle && cell.children.length === 1 ? cell.firstElementChild : null;
  (sameAction ?? successor ?? cell.closest("section").querySelector("h2")).focus();
}

function nodesOf(value) {
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

export function element(tag, text, className = "") {
  const node = document.createElement(tag);
  node.textContent = text;
  if (className) node.className = className;
  return node;
}

// The actions of a row are in the second column, visible at any width.
const withActionsSecond = (cells) => (cells.at(-1).acts ? [cells[0], cells.at(-1), ...cells.slice(1, -1)] : cells);

// Show rows, each `[key, cells, level]`, in a board; remaining rows are updated in place.
export function board(id, rows, count = rows.length) {
  const section = document.getElementById(id);
  const body = section.querySelector("tbody");
  const rowsByKey = new Map([...body.children].map((row) => [row.dataset.key, row]));
  const keys = new Set(rows.map(([key]) => key));
  for (const [key, row] of rowsByKey) { // first, so that no row below it moves and loses the focus
    if (keys.has(key)) continue;
    if (row.contains(document.activeElement)) section.querySelector("h2").focus();
    row.remove();
    rowsByKey.delete(key);
  }
  rows.forEach(([key, values, level], index) => {
    const cells = withActionsSecond(values);
    let row = rowsByKey.get(key);
    if (!row) {
      row = document.createElement("tr");
      row.dataset.key = key;
      row.append(...cells.map((_, place) => document.createElement(place ? "td" : "th")));
      row.firstElementChild.scope = "row";
      if (level) row.classList.add(`level-${Math.min(level, 4)}`);
    }
    if (body.children[index] !== row) {
      const { activeElement } = document;
      body.insertBefore(row, body.children[index] ?? null);
      if (row.contains(activeElement)) activeElement.focus({ preventScroll: true }); // it was lost
    }
    cells.forEach((cell, place) => fill(row.children[place], cell));
  });
  section.querySelector(".scroll").hidden = rows.length === 0;
  section.querySelector("[data-empty]").hidden = rows.length > 0;
  write(section.querySelector("[data-count]"), count ? number.format(count) : "");
}
