// Number fields: what the browser would silently take for another number is refused.

import { showFieldError } from "./forms.js";

const DECIMAL = new Intl.NumberFormat().formatToParts(1.5).find((part) => part.type === "decimal").value;
const SEPARATOR_ERROR = "Use a decimal point and no other separators, such as 1234.5.";

export function guardNumbers(form) {
  // Where the decimal separator is a point, browsers drop a comma: 1,5 would become 15. The field
  // stays invalid until a part of it is deleted.
  form.addEventListener("beforeinput", (event) => {
    const { target, data } = event;
    if (target.type !== "number" || DECIMAL === "," || !data?.includes(",")) return;
    event.preventDefault();
    if (target.validity.customError) return;
    target.setCustomValidity(SEPARATOR_ERROR);
    showFieldError(target, SEPARATOR_ERROR, false);
  });
  form.addEventListener("input", ({ target, inputType = "" }) => {
    if (target.type !== "number" || !target.validity.customError) return;
    if (inputType.startsWith("insert")) showFieldError(target, SEPARATOR_ERROR);
    else target.setCustomValidity("");
  });
  // The wheel scrolls the page: a field that is read-only meanwhile keeps its number and the focus.
  form.addEventListener("wheel", ({ target }) => {
    if (target.type !== "number" || target.readOnly) return;
    target.readOnly = true;
    setTimeout(() => { target.readOnly = false; });
  }, { passive: true });
}
