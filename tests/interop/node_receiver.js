// A receiver in Node that verifies with the npm package standardwebhooks. Run by test_node.py.
// The first argument is JSON: {path: {secret, answers: [status, …]}}; each path answers its
// statuses in turn, the last one for ever. Prints its port, then a line of JSON for each POST.
"use strict";
const http = require("node:http");
const { Webhook } = require("standardwebhooks");

const paths = JSON.parse(process.argv[2]);
const counts = {};

function verifier(secret) {
  return secret.startsWith("whsec_")
    ? new Webhook(secret)
    : new Webhook(Buffer.from(secret, "utf8"), { format: "raw" });
}

function verdict(request, body) {
  try {
    return { data: verifier(paths[request.url].secret).verify(body, request.headers).data };
  } catch (error) {
    return { error: String(error) };
  }
}

const server = http.createServer((request, response) => {
  const parts = [];
  request.on("data", (part) => parts.push(part));
  request.on("end", () => {
    const { answers } = paths[request.url];
    const nth = (counts[request.url] = (counts[request.url] ?? -1) + 1);
    const told = verdict(request, Buffer.concat(parts));
    const line = { path: request.url, id: request.headers["webhook-id"], ...told };
    console.log(JSON.stringify(line));
    response.writeHead(answers[Math.min(nth, answers.length - 1)]).end();
  });
});
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
