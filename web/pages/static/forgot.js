// Asking for a recovery link: the response is the same for every account.

import { call } from "./api.js";
import { enable, onSubmit, switchView, withInertForm } from "./forms.js";

const form = document.getElementById("forgot");
onSubmit(form, async () => {
  const usr = form.elements.usr.value;
  await withInertForm(form, () => call("POST", "/api/auth/forgot-password", { usr })); // its name is shown then
  const sent = document.getElementById("sent");
  sent.querySelector("[data-usr]").textContent = usr;
  switchView(document.getElementById("ask"), sent);
});
enable("forgot");
