// What a list can do beside being read: ranges of times, invitations to the list of users, replays
// to that of deliveries.

import { call, documentPath, operation } from "./api.js";
import { ask } from "./app.js";
import { enable } from "./forms.js";
import { handOver } from "./links.js";

const REPLAYED_AT_ONCE = 4;
const ROLES_OFFERED = 100;
const many = (count, one, more) => (count === 1 ? `1 ${one}` : `${count} ${more}`);

document.querySelector("[data-invite]")?.addEventListener("click", async () => {
  let invited;
  const query = new URLSearchParams({ fields: '["name"]', order_by: "name", limit: ROLES_OFFERED });
  const roles = await call("GET", `${documentPath("Role")}?${query}`).catch(() => ({ data: [], total: 0 }));
  const more = roles.total > roles.data.length ? " Not all roles are listed here; others are given on the account's page." : "";
  const email = await ask({
    title: "Invite somebody",
    text: `A link to choose a password goes to this address.${more}`,
    ok: "Invite",
    field: { label: "E-mail", type: "email" },
    choices: { label: "Roles", options: roles.data.map((role) => role.name) },
    work: async (typed, chosen) => { invited = await operation("users.invite", { email: typed, roles: chosen }); },
  });
  if (email === null) return;
  const page = `/app/User/${encodeURIComponent(invited.user)}`;
  await handOver("Invited.", invited.link);
  location.assign(page);
});

// Replay of what is ticked, some at a time, until it is done or stopped.

const ticked = () => [...document.querySelectorAll("#found tbody .pick input:checked")];

function count() {
  const button = document.querySelector("[data-replay]");
  if (!button) return;
  const chosen = ticked().length;
  button.disabled = chosen === 0;
  button.textContent = chosen ? `Replay ${many(chosen, "delivery", "deliveries")}` : "Replay selected";
}

async function replay() {
  const names = ticked().map((input) => input.value);
  const sure = await ask({
    title: `Replay ${many(names.length, "delivery", "deliveries")}?`,
    text: "Each is sent again with the same id and body. Deliveries in progress are skipped.",
    ok: "Replay",
  });
  if (sure === null) return;
  const holder = document.querySelector("[data-progress]");
  const bar = holder.querySelector("progress");
  const status = holder.querySelector("[role=status]");
  const count = holder.querySelector("[data-done]"); // not in the status: nobody wants to hear each
  let stopped = false;
  holder.querySelector("[data-stop]").onclick = () => { stopped = true; };
  holder.hidden = false;
  bar.max = names.length;
  const refused = new Map();
  let done = 0;
  const tell = () => {
    bar.value = done;
    count.textContent = `${done} of ${bar.max}`;
  };
  status.textContent = "";
  tell();
  const work = async () => {
    while (names.length > 0 && !stopped) {
      const delivery = names.shift();
      try {
        await operation("webhooks.replay", { delivery });
      } catch (error) {
        refused.set(error.message, (refused.get(error.message) ?? 0) + 1);
      }
      done += 1;
      tell();
    }
  };
  await Promise.all(Array.from({ length: REPLAYED_AT_ONCE }, work));
  holder.querySelector("[data-stop]").hidden = true;
  count.textContent = "";
  const replayed = done - [...refused.values()].reduce((sum, number) => sum + number, 0);
  const told = [...refused].map(([message, number]) => `${number} not replayed: ${message}`);
  status.textContent = [stopped ? "Stopped." : "Done.", `${many(replayed, "delivery is", "deliveries are")} queued again.`, ...told].join(" ");
}

document.addEventListener("change", (event) => {
  if (event.target.matches("[data-all]")) {
    for (const input of document.querySelectorAll("#found tbody .pick input")) input.checked = event.target.checked;
  }
  if (event.target.closest("#found .pick")) count();
});
document.addEventListener("click", (event) => {
  if (event.target.closest("[data-replay]")) replay();
});
// A range is typed in the reader's own zone, and asked for in UTC.
const zone = new Intl.DateTimeFormat(undefined, { timeZoneName: "short" }).formatToParts(new Date()).find((part) => part.type === "timeZoneName").value;
const local = (at) => new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
for (const input of document.querySelectorAll("[data-time]")) {
  const sent = Object.assign(document.createElement("input"), { type: "hidden", name: input.name });
  const asked = input.getAttribute("value");
  if (asked) {
    const at = new Date(/[Z+]|-\d\d:\d\d$/.test(asked.slice(10)) ? asked : `${asked}Z`);
    if (!Number.isNaN(at.getTime())) [input.value, sent.value] = [local(at), at.toISOString()];
  }
  input.removeAttribute("name");
  input.after(sent);
  input.addEventListener("change", () => { sent.value = input.value ? new Date(input.value).toISOString() : ""; }, true);
  input.closest(".field").querySelector("[data-zone]").textContent = `(${zone})`;
}

// On a small screen the filters wait behind a button, so that the first row is in sight.
const filters = document.querySelector("form.filters");
const opener = document.getElementById("show-filters");
opener.addEventListener("click", () => {
  const open = filters.classList.toggle("open");
  opener.setAttribute("aria-expanded", String(open));
});

// What a search or filter found is told to those who don't see it.
document.addEventListener("htmx:afterSwap", () => {
  const { total, more } = document.getElementById("found").dataset;
  const count = `${more === undefined ? "" : "More than "}${Number(total).toLocaleString()} found.`;
  document.getElementById("told").textContent = Number(total) ? count : "Nothing found.";
});
enable("list");
