// The Responses API, as the official Node client reads it; test_responses.py starts the server and knows its text.
import assert from "node:assert/strict";
import test from "node:test";
import OpenAI from "openai";

const client = new OpenAI({ baseURL: `${process.env.SACCADE_URL}/v1`, apiKey: "-", maxRetries: 0 });
const parameters = { type: "object", properties: { city: { type: "string" }, days: { type: "integer" } } };
const body = {
  model: "tiny",
  input: "How is the weather?",
  tools: [{ type: "function", name: "get_weather", parameters, strict: false }],
  stop_token_ids: [268],
};

const says = (response) => response.output.map((item) => [item.type, item.arguments ?? item.content[0].text]);

test("a stream adds up to the whole response", async () => {
  const whole = await client.responses.create(body);
  assert.equal(whole.status, "completed");
  assert.equal(whole.output_text, "I look.");
  const stream = client.responses.stream(body);
  let pieces = 0;
  stream.on("response.function_call_arguments.delta", () => pieces++);
  const final = await stream.finalResponse();
  assert.ok(pieces > 20, "arguments are streamed");
  assert.deepEqual(says(final), says(whole));
  assert.deepEqual(JSON.parse(final.output.at(-1).arguments), { city: "Paris", days: 2 });
});

test("items and results go back into the conversation", async () => {
  const { output, usage } = await client.responses.create(body);
  const calls = output.filter((item) => item.type === "function_call");
  const results = calls.map(({ call_id }) => ({ type: "function_call_output", call_id, output: "22 degrees" }));
  const input = [{ role: "user", content: body.input }, ...output, ...results];
  const again = await client.responses.create({ ...body, input });
  assert.ok(again.usage.input_tokens > usage.input_tokens + 2 * "22 degrees".length);
});

test("errors name the field", async () => {
  await assert.rejects(
    client.responses.create({ ...body, store: true }),
    (e) => e instanceof OpenAI.BadRequestError && e.param === "store" && e.code === "unsupported_parameter",
  );
});
