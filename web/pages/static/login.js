// The sign-in screen.

import { call } from "./api.js";
import { addRevealButtons, enable, isFocusKept, nextPage, onSubmit, showMessage, withInertForm } from "./forms.js";

const MINUTE = 60;
const form = document.getElementById("login");
const { usr, pwd } = form.elements;
const message = form.querySelector(".message");
let countdown;

async function signIn() {
  endCountdown();
  try {
    await withInertForm(form, () => call("POST", "/api/login", { usr: usr.value, pwd: pwd.value }));
  } catch (error) {
    if (error.status !== 401 && error.status !== 429) throw error; // the password may be right
    pwd.value = "";
    if (form.contains(document.activeElement) || isFocusKept(form)) pwd.focus();
    if (error.status === 401) throw error;
    startCountdown(error.extra.retryAfter ?? MINUTE);
    return;
  }
  location.assign(form.dataset.following);
  await nextPage(); // until then the button waits: a second click would begin another session
}

// Show the remaining time of the lock, and keep it current. It is read out once, and its end.
function startCountdown(seconds) {
  const end = Date.now() + seconds * 1000;
  const showRemaining = (isFirst = false) => {
    const remaining = Math.ceil((end - Date.now()) / 1000);
    if (remaining <= 0) {
      endCountdown();
      showMessage(form, "You can try again now.", false);
      return;
    }
    showMessage(form, `Too many attempts. Try again in ${durationText(remaining)}.`, isFirst);
  };
  showRemaining(true);
  countdown = setInterval(() => {
    message.setAttribute("aria-live", "off");
    showRemaining();
  }, seconds > MINUTE ? 15_000 : 1000);
}

function endCountdown() {
  clearInterval(countdown);
  message.removeAttribute("aria-live");
}

function durationText(seconds) {
  if (seconds < MINUTE) return seconds === 1 ? "a second" : `${seconds} seconds`;
  const minutes = Math.ceil(seconds / MINUTE);
  return minutes === 1 ? "a minute" : `${minutes} minutes`;
}

addRevealButtons();
onSubmit(form, signIn);
const demo = document.getElementById("use-demo");
demo?.addEventListener("click", () => {
  usr.value = demo.dataset.user;
  pwd.value = demo.dataset.password;
  form.requestSubmit();
});
enable("login");
