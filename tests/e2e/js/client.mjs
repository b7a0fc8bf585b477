// OpenAI's JavaScript client, unchanged, through every case that it is told.
//
//     node client.mjs URL CASE...
//
// prints one JSON object a case: {"case", …what the client saw…}, or {"case", "failed"}.

import OpenAI, { toFile } from "openai";

const [url, ...cases] = process.argv.slice(2);
const messages = [{ role: "user", content: "Hello" }];
let requests = 0;

const client = new OpenAI({
  baseURL: `${url}/v1`,
  apiKey: "sk-of-no-importance",
  maxRetries: 0,
  fetch: (...how) => ((requests += 1), fetch(...how)),
});

const chat = (model, more = {}, how = {}) =>
  client.chat.completions.create({ model, messages, ...more }, how);

/** The class and fields of what a promise is rejected with. */
async function rejection(promise) {
  try {
    await promise;
  } catch (error) {
    return {
      raised: error.constructor.name,
      isAnApiError: error instanceof OpenAI.APIError,
      status: error.status,
      code: error.code,
      requestId: error.requestID,
      retryAfter: error.headers?.get("retry-after"),
    };
  }
  return { raised: null };
}

/** Until so many requests are in flight, at the agent and at the engine; the test's limit ends it. */
async function untilInFlight(name, count) {
  for (;;) {
    const { models } = await (await fetch(`${url}/api/cluster/_self`)).json();
    const { in_flight, port } = models.find((model) => model.name === name);
    const { running } = await (await fetch(`http://127.0.0.1:${port}/debug/state`)).json();
    if (in_flight === count && running === count) return;
    await new Promise((go) => setTimeout(go, 20));
  }
}

const CASES = {
  async chat() {
    const answer = await chat("gpt-4o-mini");
    return { text: answer.choices[0].message.content, requestId: answer._request_id };
  },
  async stream() {
    let text = "";
    for await (const chunk of await chat("a", { stream: true })) {
      text += chunk.choices[0]?.delta.content ?? "";
    }
    return { text };
  },
  async embeddings() {
    const answer = await client.embeddings.create({
      model: "embed",
      input: "Hello",
      encoding_format: "float",
    });
    return { vector: answer.data[0].embedding };
  },
  async models() {
    const names = [];
    for await (const model of client.models.list()) names.push(model.id);
    return { names, one: (await client.models.retrieve("gpt-4o-mini")).id };
  },
  async file() {
    const file = await toFile(Buffer.alloc(1_000_000), "a.wav");
    const answer = await client.audio.transcriptions.create({ model: "gpt-4o-mini", file });
    return { text: answer.text };
  },
  async abort_before_the_first_byte() {
    const abort = new AbortController();
    const seen = rejection(chat("slow", {}, { signal: abort.signal }));
    await untilInFlight("slow", 1);
    abort.abort();
    const told = await seen;
    await untilInFlight("slow", 0);
    return told;
  },
  async abort_in_mid_stream() {
    const stream = await chat("long", { stream: true });
    let chunks = 0;
    for await (const _ of stream) {
      chunks += 1;
      await untilInFlight("long", 1);
      stream.controller.abort();
    }
    await untilInFlight("long", 0);
    return { chunks };
  },
  bad_request: () => rejection(chat("embed")),
  not_found: () => rejection(chat("nobody")),
  rate_limit: () => rejection(chat("busy")),
  unavailable: () => rejection(chat("stuck")),
  async disabled() {
    const before = requests;
    const told = await rejection(chat("off", {}, { maxRetries: 5 }));
    return { ...told, requests: requests - before };
  },
};

for (const name of cases) {
  try {
    console.log(JSON.stringify({ case: name, ...(await CASES[name]()) }));
  } catch (error) {
    console.log(JSON.stringify({ case: name, failed: String(error) }));
  }
}
