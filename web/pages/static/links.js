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
  const description = document.createElement("p");
  description.className = "muted";
  description.id = "link-about";
  dialog.setAttribute("aria-describedby", description.id);
  description.textContent = "No mail is sent on this site. Pass this link on; it works once.";
  const linkText = document.createElement("code");
  linkText.textContent = link;
  const buttons = document.createElement("div");
  buttons.className = "buttons";
  const copyButton = document.createElement("button");
  copyButton.type = "button";
  copyButton.textContent = "Copy";
  copyButton.addEventListener("click", () => copy(link, copyButton));
  const closeButton = document.createElement("button");
  closeButton.type = "button";
  closeButton.className = "primary";
  closeButton.textContent = "Done";
  closeButton.addEventListener("click", () => dialog.close());
  buttons.append(copyButton, closeButton);
  const content = document.createElement("div");
  content.className = "made";
  content.append(title, description, linkText, buttons);
  dialog.append(content);
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve();
    });
  });
}
