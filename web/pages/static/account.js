// My account: every action is a self-service operation of the JSON API.

import { operation } from "./api.js";
import { ask, copy, flash, hasSingleKeys, setSingleKeys, tell } from "./app.js";
import { busy, enable, isFocusLeft, isValidInBrowser, onSubmit, revealable, showFieldError, withInertForm } from "./forms.js";
import { saidOf, watch } from "./policy.js";

// The last renewal; one follows the other, because the second of two at once would end the first.
let renewal = Promise.resolve();

// Show the sessions and the keys that are left; typed values, and a key that is shown once, stay.
function renew(text) {
  flash(text);
  renewal = renewal.then(replaceLists);
  return renewal;
}

async function replaceLists() {
  const parts = { target: "#sessions", select: "#sessions", selectOOB: "#api-keys", swap: "outerHTML" };
  const before = document.getElementById("api-keys");
  await htmx.ajax("GET", location.pathname, parts).catch(() => {}); // app.js states the reason
  if (document.getElementById("api-keys") === before) return; // an old list does not have the new key
  enable("account");
  revokeOthers.hidden = document.querySelectorAll("#sessions li").length < 2;
  revokeKeys.hidden = !document.querySelector("#api-keys [data-name]");
  const shown = document.getElementById("made-key");
  const [, name] = shown?.querySelector("[data-text]").textContent.split("_") ?? []; // fwk_NAME_SECRET
  const names = [...document.querySelectorAll("#api-keys [data-name]")].map((each) => each.dataset.name);
  if (shown && !names.includes(name)) shown.hidden = true;
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
revealable(change);
onSubmit(change, async () => {
  const { current, password } = change.elements;
  const said = saidOf(policy, validate());
  if (said) {
    showFieldError(password, said);
    return;
  }
  const begun = document.activeElement;
  try {
    await withInertForm(change, () => operation("profile.changeMyPassword", { current: current.value, password: password.value }));
  } catch (error) {
    if (error.type === "PasswordPolicyError") showFieldError(password, error.message, isFocusLeft(begun));
    else if (error.type === "AuthenticationError" && error.extra.reason !== "noSession") showFieldError(current, error.message, isFocusLeft(begun));
    else throw error;
    return;
  }
  await offerToRevokeKeys(!isFocusLeft(begun));
});

// Keys survive a change of the password by its owner; a user of the old password may have created some.
async function offerToRevokeKeys(interrupts) {
  change.reset();
  validate();
  await renewal; // a key that was just created may not be listed yet
  if (!document.querySelector("#api-keys [data-name], #made-key:not([hidden])")) {
    await renew("Your password is changed.");
    return;
  }
  const sure = await ask({
    title: "Your password is changed. Revoke your API keys too?",
    text: "They still work. Keep them only if nobody else can have created or seen one.",
    ok: "Revoke all keys",
    cancel: "Keep the keys",
    danger: true,
    interrupts,
    work: () => operation("api_keys.revokeAllMyAPIKeys"),
  });
  await renew(sure === null ? "Your password is changed; your API keys still work." : "Your password is changed, and your API keys are revoked.");
}

const revokeKeys = document.getElementById("revoke-keys");
revokeKeys.addEventListener("click", async () => {
  const sure = await ask({
    title: "Revoke all your API keys?",
    text: "Programs that use one of them lose access at once.",
    ok: "Revoke all keys",
    danger: true,
    work: () => operation("api_keys.revokeAllMyAPIKeys"),
  });
  if (sure !== null) await renew("Your API keys are revoked.");
  keepFocus("api-keys-title");
});

const revokeOthers = document.getElementById("revoke-others");
revokeOthers.addEventListener("click", async () => {
  const sure = await ask({
    title: "End all other sessions?",
    text: "Other browsers and devices must sign in again.",
    ok: "End them",
    work: () => operation("sessions.revokeMyOtherSessions"),
  });
  if (sure !== null) await renew("The other sessions have ended.");
  keepFocus("sessions-title");
});

document.querySelector("main").addEventListener("click", (event) => {
  const button = event.target.closest("[data-revoke-session]");
  if (!button) return;
  busy(button, async () => {
    await operation("sessions.revokeMySession", { id: button.closest("li").dataset.id }).catch(unlessGone);
    await renew("The session has ended.");
    keepFocus("sessions-title");
  }).catch((error) => tell(error.message));
});

const make = document.getElementById("make-key");
if (make) {
  onSubmit(make, async () => {
    const { label, days } = make.elements;
    if (!isValidInBrowser(make)) return; // an invalid number has the value "", which would mean no limit
    const begun = document.activeElement;
    const typed = () => JSON.stringify([label.value, days.value]);
    const sent = typed();
    const body = { label: label.value };
    if (days.value) body.days = Number(days.value);
    const made = await operation("api_keys.createMyAPIKey", body);
    const isUntouched = typed() === sent; // or else the next key is being described
    if (isUntouched) make.reset();
    const shown = document.getElementById("made-key");
    shown.querySelector("[data-text]").textContent = made.key;
    shown.hidden = false;
    const button = shown.querySelector("[data-copy]");
    button.onclick = () => copy(made.key, button);
    if (isUntouched && isFocusLeft(begun)) button.focus();
    await renew("The key is created.");
  });
}

document.querySelector("main").addEventListener("click", async (event) => {
  const button = event.target.closest("#api-keys [data-revoke-key]");
  if (!button) return;
  const { name } = button.closest("li").dataset;
  const sure = await ask({
    title: "Revoke this key?",
    text: "Programs that use it lose access at once.",
    ok: "Revoke",
    danger: true,
    work: () => operation("api_keys.revokeMyAPIKey", { name }).catch(unlessGone),
  });
  if (sure !== null) await renew("The key is revoked.");
  keepFocus("api-keys-title");
});

const singleKeys = document.getElementById("single-keys");
singleKeys.checked = hasSingleKeys();
singleKeys.disabled = false;
singleKeys.addEventListener("change", () => setSingleKeys(singleKeys.checked));
enable("account");
