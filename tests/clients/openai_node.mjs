// What the official Node client sees.
import assert from "node:assert/strict";
import test from "node:test";
import OpenAI from "openai";

const model = "saccade-tiny";
const client = new OpenAI({ baseURL: `${process.env.SACCADE_URL}/v1`, apiKey: "-", maxRetries: 0 });
const messages = [{ role: "user", content: "Hello! Who are you?" }];

test("models", async () => {
  const names = [];
  for await (const m of client.models.list()) names.push(m.id);
  assert.deepEqual(names, [model]);
});

test("chat, streamed and not", async () => {
  const body = { model, messages, temperature: 0.7, seed: 3, max_tokens: 40 };
  const whole = await client.chat.completions.create(body);
  let text = "";
  let usage;
  let finish;
  const stream = await client.chat.completions.create({
    ...body,
    stream: true,
    stream_options: { include_usage: true },
  });
  for await (const chunk of stream) {
    text += chunk.choices[0]?.delta?.content ?? "";
    finish = chunk.choices[0]?.finish_reason ?? finish;
    usage = chunk.usage ?? usage;
  }
  assert.equal(text, whole.choices[0].message.content);
  assert.equal(finish, whole.choices[0].finish_reason);
  assert.deepEqual(usage, whole.usage);
});

test("completions with n, stop and logprobs", async () => {
  const body = { model, prompt: "In the beginning", n: 2, seed: 9, max_tokens: 16, logprobs: 2 };
  const answer = await client.completions.create(body);
  assert.equal(answer.choices.length, 2);
  for (const choice of answer.choices) {
    assert.equal(choice.logprobs.tokens.length, choice.logprobs.token_logprobs.length);
    // An end-of-sequence token is among the tokens, but not in the text.
    assert.ok(choice.logprobs.tokens.join("").startsWith(choice.text));
  }
  const stop = answer.choices[0].text.slice(4, 8);
  const stopped = await client.completions.create({ ...body, n: 1, stop: [stop] });
  assert.equal(stopped.choices[0].finish_reason, "stop");
  assert.ok(!stopped.choices[0].text.includes(stop));
});

test("an aborted stream ends", async () => {
  const stream = await client.completions.create({
    model,
    prompt: "a",
    max_tokens: 1000,
    ignore_eos: true, // or it may end before the third event
    stream: true,
  });
  let seen = 0;
  for await (const _ of stream) {
    if (++seen === 3) stream.controller.abort();
  }
  assert.ok(seen >= 3);
});

test("errors are errors", async () => {
  await assert.rejects(
    client.completions.create({ model, prompt: "a", temperature: -3 }),
    (e) => e instanceof OpenAI.BadRequestError && e.param === "temperature",
  );
  await assert.rejects(
    client.chat.completions.create({ model: "other", messages }),
    (e) => e instanceof OpenAI.NotFoundError,
  );
});
