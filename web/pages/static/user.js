// A System Manager's actions on an account. After each action its state is read again.

import { operation } from "./api.js";
import { ask, flash } from "./app.js";
import { busy, clear, enable, showMessage } from "./forms.js";
import { handOver } from "./links.js";
import { counted } from "./words.js";

const DONE = {
  resendInvite: () => "The invitation has been sent again; earlier links no longer work.",
  sendPasswordReset: () => "The reset link has been sent; earlier links no longer work.",
  revokeUserSessions: ({ sessionsEnded, keysEnded }) => `${counted(sessionsEnded, "session has", "sessions have")} ended.${keysEnded === undefined ? "" : ` ${counted(keysEnded, "API key has", "API keys have")} ended.`}`,
  unlockUser: () => "The account may sign in again.",
};

const section = () => document.getElementById("user-acts");

function endQuestion(user) {
  const keys = document.getElementById("revoke-keys").checked;
  const ownNote = section().dataset.own === "yes" ? " This is your own account: you will be signed out, too." : "";
  const effect = keys ? "Everybody who is signed in with it must sign in again, and programs with its API keys are refused from now on." : "Everybody who is signed in with it must sign in again. API keys continue to work.";
  return { title: `End all sessions of ${user}?`, text: effect + ownNote, ok: "End them", danger: true };
}

async function act(button) {
  const name = button.dataset.userAct;
  const { user } = section().dataset;
  clear(section());
  const options = name === "revokeUserSessions" && document.getElementById("revoke-keys").checked ? { keys: true } : {};
  let result;
  const work = async () => { result = await operation(`users.${name}`, { user, ...options }); };
  if (name === "revokeUserSessions") {
    if ((await ask({ ...endQuestion(user), work })) === null) return;
  } else {
    await busy(button, work);
  }
  if (name === "revokeUserSessions" && section().dataset.own === "yes") {
    location.assign("/login"); // this one has ended, too
    return;
  }
  flash(DONE[name](result));
  await handOver(DONE[name](result), result.link);
  await reloadSection();
}

// Show the state and the currently possible actions; typed values in the form stay.
async function reloadSection() {
  await htmx.ajax("GET", location.pathname, { target: "#user-acts", select: "#user-acts", swap: "outerHTML" }).catch(() => {}); // app.js states the reason
  if (document.activeElement === document.body) document.getElementById("acts").focus({ preventScroll: true }); // the button is gone
}

document.querySelector("main").addEventListener("click", (event) => {
  const button = event.target.closest("#user-acts [data-user-act]");
  if (button) act(button).catch((error) => showMessage(section(), error.message));
});
enable("user");
document.addEventListener("htmx:afterSwap", () => enable("user"));
