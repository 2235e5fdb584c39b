// The JSON API for the pages: every change by a page is one call from here.

export class ApiError extends Error {
  // `status` 0: there was no response of the service, which may have carried out the request. `type`, `field` and `extra` are those of the envelope.
  constructor(status, error) {
    super(error.message);
    this.status = status;
    this.type = error.type;
    this.extra = error.extra ?? {};
    this.field = this.extra.field;
  }
}

export const UNREACHABLE = { type: "Unreachable", message: "The service did not answer. Check your connection and try again." };
export const SESSION_ENDED = "Your session has ended. Sign in again in another tab, then retry here. Your input is kept.";

// The user whose page this is. If another one has signed in in this browser since it was opened, the
// service refuses its requests.
const user = document.querySelector("meta[name=user]")?.content;
export const USER_HEADER = user === undefined ? {} : { "X-FW-User": encodeURIComponent(user) };

// The messages of responses that are not the service's own, but those of a proxy or of the server
// that reads its requests.
const TOO_LARGE = "This is too large. Shorten it, then try again.";
const MESSAGES = new Map([
  [413, TOO_LARGE],
  [414, TOO_LARGE],
  [431, TOO_LARGE],
  [429, "There were too many requests. Wait a minute, then try again."],
]);

// The error in a response's content: that of the service, or else one for the status.
export function errorOf(status, content) {
  if (typeof content?.error?.message === "string") return content.error;
  return { type: "Unreachable", message: MESSAGES.get(status) ?? `The service answered ${status}. Try again.` };
}

function apiErrorOf(status, content) {
  const error = errorOf(status, content);
  if (status >= 500 && error.type === "Unreachable") return new ApiError(0, error); // it may have been carried out
  if (status === 401 && !document.body.classList.contains("entrance")) {
    return new ApiError(401, { ...error, message: error.extra?.reason === "noSession" ? SESSION_ENDED : error.message });
  }
  return new ApiError(status, error);
}

const JSON_ONLY = { Accept: "application/json", ...USER_HEADER };

export async function call(method, path, body) {
  const headers = { ...JSON_ONLY };
  if (method !== "GET") headers["X-FW-CSRF"] = "1";
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  } catch {
    throw new ApiError(0, UNREACHABLE);
  }
  const content = await response.json().catch(() => null);
  if (response.ok && (content === null || typeof content !== "object")) throw new ApiError(0, UNREACHABLE); // it ended early
  if (response.ok) return content;
  throw apiErrorOf(response.status, content);
}

// A file of the service, and its name.
export async function file(path) {
  try {
    const response = await fetch(path, { headers: JSON_ONLY, redirect: "manual" });
    if (response.type === "opaqueredirect") throw new ApiError(401, { message: SESSION_ENDED }); // to the sign-in page
    if (!response.ok) throw apiErrorOf(response.status, await response.json().catch(() => null));
    const [, name] = /filename\*=UTF-8''([^;]+)/.exec(response.headers.get("Content-Disposition")) ?? [];
    return { content: await response.blob(), name: decodeURIComponent(name ?? "file") };
  } catch (error) {
    throw error instanceof ApiError ? error : new ApiError(0, UNREACHABLE);
  }
}

// Call `onEvent(name, data)` with each server-sent event until the stream ends. EventSource could
// neither name the page's user nor read why the service refuses a stream.
export async function follow(path, signal, onEvent) {
  const unreachable = () => { throw new ApiError(0, UNREACHABLE); };
  const headers = { ...JSON_ONLY, Accept: "text/event-stream, application/json" };
  const response = await fetch(path, { headers, signal }).catch(unreachable);
  if (!response.ok) throw apiErrorOf(response.status, await response.json().catch(() => null));
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "";
  for (;;) {
    const { value, done } = await reader.read().catch(unreachable); // eslint-disable-line no-await-in-loop
    if (done) return;
    const events = (buffer + value).split("\n\n");
    buffer = events.pop();
    for (const event of events) {
      const [, data] = /^data: (.*)$/m.exec(event) ?? [];
      if (data !== undefined) onEvent(/^event: (.*)$/m.exec(event)?.[1] ?? "message", data);
    }
  }
}

export const operation = (name, body = {}) => call("POST", `/api/method/core.services.${name}`, body);

export const documentPath = (doctype, name) =>
  `/api/resource/${encodeURIComponent(doctype)}${name === undefined ? "" : `/${encodeURIComponent(name)}`}`;
