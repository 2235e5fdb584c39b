// What a System Manager does with an account.

import { operation } from "./api.js";
import { flash } from "./app.js";
import { busy, clear, enable, say } from "./forms.js";
import { handOver } from "./links.js";

const counted = (count, unit) => (count === 1 ? `One ${unit} has ended.` : `${count} ${unit}s have ended.`);
const DONE = {
  resendInvite: () => "The invitation is sent again; the one before no longer works.",
  sendPasswordReset: () => "The reset link is sent; one sent before no longer works.",
  revokeUserSessions: ({ sessionsEnded, keysEnded }) => counted(sessionsEnded, "session") + (keysEnded === undefined ? "" : ` ${counted(keysEnded, "API key")}`),
  unlockUser: () => "The account may sign in again.",
};

const acts = document.getElementById("user-acts");
const keys = document.getElementById("revoke-keys");
const FURTHER = { revokeUserSessions: () => (keys.checked ? { keys: true } : {}) };
for (const button of acts.querySelectorAll("[data-user-act]")) {
  const act = button.dataset.userAct;
  button.addEventListener("click", () => {
    clear(acts);
    busy(button, async () => {
      const told = await operation(`users.${act}`, { user: acts.dataset.user, ...FURTHER[act]?.() });
      flash(DONE[act](told));
      document.getElementById("flash").scrollIntoView({ block: "nearest" });
      await handOver(DONE[act](told), told.link);
    }).catch((error) => say(acts, error.message));
  });
}
enable("user");
