// Files are fetched by the page, which states a refusal; the browser would save it as the file.

import { file } from "./api.js";
import { showProblem } from "./app.js";
import { busy } from "./forms.js";

const KEPT_MS = 60_000; // until the browser has surely begun to save it

function save({ content, name }) {
  const href = URL.createObjectURL(content);
  Object.assign(document.createElement("a"), { href, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(href), KEPT_MS);
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[download]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  busy(link, async () => {
    save(await file(link.href));
    document.getElementById("trouble").hidden = true; // of a try before
  }).catch((error) => showProblem(error.message));
});
