// Tool calls, as the official Node client reads them; test_tools.py starts the server and knows its text.
import assert from "node:assert/strict";
import test from "node:test";
import OpenAI from "openai";

const client = new OpenAI({ baseURL: `${process.env.SACCADE_URL}/v1`, apiKey: "-", maxRetries: 0 });
const parameters = { type: "object", properties: { city: { type: "string" }, days: { type: "integer" } } };
const body = {
  model: "tiny",
  messages: [{ role: "user", content: "How is the weather?" }],
  tools: [{ type: "function", function: { name: "get_weather", parameters } }],
  stop_token_ids: [268],
};

test("a stream adds up to the whole answer", async () => {
  const whole = (await client.chat.completions.create(body)).choices[0];
  assert.equal(whole.finish_reason, "tool_calls");
  assert.equal(whole.message.content, "I look.");
  const stream = client.chat.completions.stream(body);
  let pieces = 0;
  stream.on("tool_calls.function.arguments.delta", () => pieces++);
  const final = (await stream.finalChatCompletion()).choices[0];
  assert.ok(pieces > 20, "arguments are streamed");
  assert.equal(final.finish_reason, "tool_calls");
  const calls = (message) => message.tool_calls.map((c) => [c.type, c.function.name, c.function.arguments]);
  assert.deepEqual(calls(final.message), calls(whole.message));
  assert.deepEqual(JSON.parse(final.message.tool_calls[0].function.arguments), { city: "Paris", days: 2 });
});

test("a function is run and its result goes back", async () => {
  const asked = [];
  const get_weather = (args) => {
    asked.push(args);
    return "22 degrees";
  };
  const tool = { type: "function", function: { name: "get_weather", parameters, parse: JSON.parse, function: get_weather } };
  // The device always calls: the runner is stopped after two rounds.
  const runner = client.chat.completions.runTools({ ...body, tools: [tool] }, { maxChatCompletions: 2 });
  await runner.done().catch(() => {});
  assert.equal(asked.length, 4);
  assert.deepEqual(asked[0], { city: "Paris", days: 2 });
  assert.equal(runner.messages.filter((m) => m.role === "tool").length, 4);
});
