// My account: every action is a self-service operation of the JSON API.

import { operation } from "./api.js";
import { ask, copy, flash, hasSingleKeys, setSingleKeys, showProblem } from "./app.js";
import { addRevealButtons, busy, enable, isFocusKept, isValidInBrowser, onSubmit, showFieldError, withInertForm } from "./forms.js";
import { policyErrorOf, watch } from "./policy.js";

// The last renewal; one follows the other, because the second of two at once would end the first.
let lastReload = Promise.resolve();

// Show the sessions and the keys that are left; typed values, and a key that is shown once, stay.
function reloadLists(text) {
  flash(text);
  lastReload = lastReload.then(replaceLists);
  return lastReload;
}

async function replaceLists() {
  const parts = { target: "#sessions", select: "#sessions", selectOOB: "#api-keys", swap: "outerHTML" };
  const before = document.getElementById("api-keys");
  await htmx.ajax("GET", location.pathname, parts).catch(() => {}); // app.js states the reason
  if (document.getElementById("api-keys") === before) return; // an old list does not have the new key
  enable("account");
  revokeOthers.hidden = document.querySelectorAll("#sessions li").length < 2;
  revokeKeys.hidden = !document.querySelector("#api-keys [data-name]");
  const panel = document.getElementById("made-key");
  const [, name] = panel?.querySelector("[data-text]").textContent.split("_") ?? []; // fwk_NAME_SECRET
  const names = [...document.querySelectorAll("#api-keys [data-name]")].map((each) => each.dataset.name);
  if (panel && !names.includes(name)) panel.hidden = true;
}

// A session or a key that has ended meanwhile, in another tab for example, needs no further action.
function unlessGone(error) {
  if (error.status !== 404) throw error;
}

// The button of an action may be gone.
function keepFocus(heading) {
  if (document.activeElement === document.body || document.activeElement.closest("[hidden]")) document.getElementById(heading).focus({ preventScroll: true });
}

const profile = document.getElementById("profile");
onSubmit(profile, async () => {
  const { fullName, language } = profile.elements;
  await operation("profile.updateMyProfile", { fullName: fullName.value, language: language.value });
  flash("Saved.");
});

const change = document.getElementById("change-password");
const policy = document.getElementById("policy");
const { minimum, maximum, names } = change.dataset;
const validate = watch(change.elements.password, policy, Number(minimum), Number(maximum), () => JSON.parse(names));
addRevealButtons(change);
onSubmit(change, async () => {
  const { current, password } = change.elements;
  const message = policyErrorOf(policy, validate());
  if (message) {
    showFieldError(password, message);
    return;
  }
  const focused = document.activeElement;
  try {
    await withInertForm(change, () => operation("profile.changeMyPassword", { current: current.value, password: password.value }));
  } catch (error) {
    if (error.type === "PasswordPolicyError") showFieldError(password, error.message, isFocusKept(focused));
    else if (error.type === "AuthenticationError" && error.extra.reason !== "noSession") showFieldError(current, error.message, isFocusKept(focused));
    else throw error;
    return;
  }
  await offerToRevokeKeys(!isFocusKept(focused));
});

// Keys survive a change of the password by its owner; a user of the old password may have created some.
async function offerToRevokeKeys(interrupts) {
  change.reset();
  validate();
  await lastReload; // a key that was just created may not be listed yet
  if (!document.querySelector("#api-keys [data-name], #made-key:not([hidden])")) {
    await reloadLists("Your password has been changed.");
    return;
  }
  const answer = await ask({
    title: "Your password has been changed. Revoke your API keys too?",
    text: "They still work. Keep them only if nobody else can have created or seen one.",
    ok: "Revoke all keys",
    cancel: "Keep the keys",
    danger: true,
    interrupts,
    work: () => operation("api_keys.revokeAllMyAPIKeys"),
  });
  await reloadLists(answer === null ? "Your password has been changed; your API keys still work." : "Your password has been changed, and your API keys have been revoked.");
}

const revokeKeys = document.getElementById("revoke-keys");
revokeKeys.addEventListener("click", async () => {
  const answer = await ask({
    title: "Revoke all your API keys?",
    text: "Programs that use one of them lose access at once.",
    ok: "Revoke all keys",
    danger: true,
    work: () => operation("api_keys.revokeAllMyAPIKeys"),
  });
  if (answer !== null) await reloadLists("Your API keys have been revoked.");
  keepFocus("api-keys-title");
});

const revokeOthers = document.getElementById("revoke-others");
revokeOthers.addEventListener("click", async () => {
  const answer = await ask({
    title: "End all other sessions?",
    text: "Other browsers and devices must sign in again.",
    ok: "End them",
    work: () => operation("sessions.revokeMyOtherSessions"),
  });
  if (answer !== null) await reloadLists("The other sessions have ended.");
  keepFocus("sessions-title");
});

document.querySelector("main").addEventListener("click", (event) => {
  const button = event.target.closest("[data-revoke-session]");
  if (!button) return;
  busy(button, async () => {
    await operation("sessions.revokeMySession", { id: button.closest("li").dataset.id }).catch(unlessGone);
    await reloadLists("The session has ended.");
    keepFocus("sessions-title");
  }).catch((error) => showProblem(error.message));
});

const keyForm = document.getElementById("make-key");
if (keyForm) {
  onSubmit(keyForm, async () => {
    const { label, days } = keyForm.elements;
    if (!isValidInBrowser(keyForm)) return; // an invalid number has the value "", which would mean no limit
    const focused = document.activeElement;
    const currentInput = () => JSON.stringify([label.value, days.value]);
    const sentInput = currentInput();
    const body = { label: label.value };
    if (days.value) body.days = Number(days.value);
    const created = await operation("api_keys.createMyAPIKey", body);
    const isUntouched = currentInput() === sentInput; // or else the next key is being described
    if (isUntouched) keyForm.reset();
    const panel = document.getElementById("made-key");
    panel.querySelector("[data-text]").textContent = created.key;
    panel.hidden = false;
    const button = panel.querySelector("[data-copy]");
    button.onclick = () => copy(created.key, button);
    if (isUntouched && isFocusKept(focused)) button.focus();
    await reloadLists("The key has been created.");
  });
}

document.querySelector("main").addEventListener("click", async (event) => {
  const button = event.target.closest("#api-keys [data-revoke-key]");
  if (!button) return;
  const { name } = button.closest("li").dataset;
  const answer = await ask({
    title: "Revoke this key?",
    text: "Programs that use it lose access at once.",
    ok: "Revoke",
    danger: true,
    work: () => operation("api_keys.revokeMyAPIKey", { name }).catch(unlessGone),
  });
  if (answer !== null) await reloadLists("The key has been revoked.");
  keepFocus("api-keys-title");
});

const singleKeys = document.getElementById("single-keys");
singleKeys.checked = hasSingleKeys();
singleKeys.disabled = false;
singleKeys.addEventListener("change", () => setSingleKeys(singleKeys.checked));
enable("account");
