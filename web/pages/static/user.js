// What a System Manager does with an account.

import { operation } from "./api.js";
import { flash } from "./app.js";
import { busy, clear, enable, say } from "./forms.js";
import { handOver } from "./links.js";

const DONE = {
  resendInvite: () => "The invitation is sent again; the one before no longer works.",
  sendPasswordReset: () => "The reset link is sent; one sent before no longer works.",
  revokeUserSessions: ({ sessionsEnded }) => (sessionsEnded === 1 ? "One session has ended." : `${sessionsEnded} sessions have ended.`),
  unlockUser: () => "The account may sign in again.",
};

const acts = document.getElementById("user-acts");
for (const button of acts.querySelectorAll("[data-user-act]")) {
  const act = button.dataset.userAct;
  button.addEventListener("click", () => {
    clear(acts);
    busy(button, async () => {
      const told = await operation(`users.${act}`, { user: acts.dataset.user });
      flash(DONE[act](told));
      document.getElementById("flash").scrollIntoView({ block: "nearest" });
      await handOver(DONE[act](told), told.link);
    }).catch((refusal) => say(acts, refusal.message));
  });
}
enable("user");
