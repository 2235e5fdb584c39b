// A recovery link or an invitation: its account, the new password, and the result.

import { call } from "./api.js";
import { addRevealButtons, busy, clear, enable, onSubmit, showFieldError, showMessage, switchView, withInertForm } from "./forms.js";
import { policyErrorOf, watch } from "./policy.js";

const PATHS = { recovery: "/api/auth/reset-password", invitation: "/api/auth/accept-invite" };
const form = document.getElementById("link");
const { kind, minimum, maximum } = form.dataset;
const { password, fullName, username } = form.elements;
const policy = document.getElementById("policy");
const views = ["looking", "ended", "set", "done"].map((id) => document.getElementById(id));
const [looking] = views;
const retryButton = document.getElementById("look-again");
const validate = watch(password, policy, Number(minimum), Number(maximum), () => [username.value]);

function showView(id) {
  const view = views.find((each) => each.id === id);
  for (const each of views) each.hidden = each !== view;
  switchView(views[0], view);
}

function showEnded(reason) {
  document.querySelector("#ended [data-reason]").textContent = reason;
  showView("ended");
}

async function checkLink() {
  const token = globalThis.linkToken;
  clear(looking);
  retryButton.hidden = true;
  if (!token) {
    showEnded("The address is not complete. Open the link from the mail once more.");
    return;
  }
  let facts;
  try {
    facts = await call("POST", "/api/auth/token", { token });
  } catch (error) {
    if (token !== globalThis.linkToken) return;
    if (error.type === "InvalidTokenError") showEnded("It was used already, has expired, or a newer one has taken its place.");
    else showMessage(looking, error.message); // the link may still work
    retryButton.hidden = error.type === "InvalidTokenError";
    return;
  }
  if (token !== globalThis.linkToken) return; // another link was opened meanwhile
  if (facts.kind !== kind) {
    showEnded("It is meant for another page. Open the link from the mail once more.");
    return;
  }
  document.querySelector("[data-user]").textContent = facts.fullName ? `${facts.fullName} (${facts.user})` : facts.user;
  const time = document.querySelector("[data-expires]");
  time.dateTime = facts.expires;
  time.textContent = new Date(facts.expires).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "long" });
  username.value = facts.user;
  if (fullName && !fullName.value) fullName.value = facts.fullName ?? "";
  showView("set");
  (fullName && !fullName.value ? fullName : password).focus();
}

async function send() {
  const message = policyErrorOf(policy, validate());
  if (message) {
    showFieldError(password, message);
    return;
  }
  const token = globalThis.linkToken;
  const body = { token, password: password.value };
  if (fullName?.value.trim()) body.fullName = fullName.value.trim();
  try {
    await withInertForm(form, () => call("POST", PATHS[kind], body));
  } catch (error) {
    if (token !== globalThis.linkToken) return; // another link was opened meanwhile
    if (error.type === "InvalidTokenError") showEnded("It was used already, has expired, or a newer one has taken its place.");
    else if (error.type === "PasswordPolicyError") showFieldError(password, error.message);
    else throw error;
    return;
  }
  if (token !== globalThis.linkToken) return;
  form.reset();
  showView("done");
}

addRevealButtons();
onSubmit(form, send);
addEventListener("link-token", () => {
  form.reset(); // what was entered belongs to the account of the former link
  showView("looking");
  checkLink();
});
retryButton.addEventListener("click", () => busy(retryButton, checkLink));
enable("link");
checkLink();
