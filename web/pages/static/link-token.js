// Removes a link's token from the address bar at once; it is only in this page's memory then.
"use strict";
{
  const take = () => {
    const token = new URLSearchParams(location.hash.slice(1)).get("token");
    if (location.hash) history.replaceState(null, "", location.pathname);
    return token;
  };
  let token = take();
  // Another link opened in the same tab changes the fragment only.
  addEventListener("hashchange", () => {
    const next = take();
    if (next === null) return; // "Skip to content" is no link
    token = next;
    dispatchEvent(new Event("link-token"));
  });
  Object.defineProperty(globalThis, "linkToken", { get: () => token });
}
