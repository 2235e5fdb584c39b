// A link that the service returns (transport `log` only): shown once, to be passed on.

import { copy } from "./app.js";

// Show it until it is closed; without a link resolves at once.
export function handOver(text, link) {
  if (!link) return Promise.resolve();
  const dialog = document.createElement("dialog");
  const title = document.createElement("h2");
  title.id = "link-title";
  title.textContent = text;
  dialog.setAttribute("aria-labelledby", title.id);
  const about = document.createElement("p");
  about.className = "muted";
  about.id = "link-about";
  dialog.setAttribute("aria-describedby", about.id);
  about.textContent = "No mail is sent on this site. Pass this link on; it works once.";
  const code = document.createElement("code");
  code.textContent = link;
  const buttons = document.createElement("div");
  buttons.className = "buttons";
  const copies = document.createElement("button");
  copies.type = "button";
  copies.textContent = "Copy";
  copies.addEventListener("click", () => copy(link, copies));
  const close = document.createElement("button");
  close.type = "button";
  close.className = "primary";
  close.textContent = "Done";
  close.addEventListener("click", () => dialog.close());
  buttons.append(copies, close);
  const all = document.createElement("div");
  all.className = "made";
  all.append(title, about, code, buttons);
  dialog.append(all);
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve();
    });
  });
}
