// The helpers of the official Node client for zod; test_openai_node.py starts the server.
import assert from "node:assert/strict";
import test from "node:test";
import OpenAI from "openai";
import { zodFunction, zodResponseFormat, zodResponsesFunction, zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";

const client = new OpenAI({ baseURL: `${process.env.SACCADE_URL}/v1`, apiKey: "-", maxRetries: 0 });
const Light = z.object({
  on: z.boolean(),
  level: z.number().int().min(0).max(9),
  colour: z.enum(["red", "green"]).nullable(),
  lamp: z.discriminatedUnion("kind", [
    z.object({ kind: z.literal("desk") }),
    z.object({ kind: z.literal("wall"), side: z.enum(["left", "right"]) }),
  ]),
});
const text = "Switch the light on.";
// A small model that is warmer may indent without end.
const chat = { model: "saccade-tiny", messages: [{ role: "user", content: text }], temperature: 0, max_tokens: 400 };
const response = { model: "saccade-tiny", input: text, temperature: 0, max_output_tokens: 400 };

test("a chat's format is obeyed and parsed", async () => {
  const body = { ...chat, response_format: zodResponseFormat(Light, "light") };
  const { parsed } = (await client.chat.completions.parse(body)).choices[0].message;
  assert.deepEqual(Light.parse(parsed), parsed);
  const streamed = await client.chat.completions.stream(body).finalChatCompletion();
  assert.deepEqual(streamed.choices[0].message.parsed, parsed);
});

test("a chat's function is called with what its schema accepts", async () => {
  const tools = [zodFunction({ name: "light", parameters: Light })];
  const choices = ["required", { type: "function", function: { name: "light" } }];
  for (const tool_choice of choices) {
    const body = { ...chat, tools, tool_choice, parallel_tool_calls: false };
    const [call] = (await client.chat.completions.parse(body)).choices[0].message.tool_calls;
    assert.equal(call.function.name, "light");
    assert.deepEqual(Light.parse(call.function.parsed_arguments), call.function.parsed_arguments);
  }
});

test("a response's format is obeyed and parsed", async () => {
  const body = { ...response, text: { format: zodTextFormat(Light, "light") } };
  const { output_parsed } = await client.responses.parse(body);
  assert.deepEqual(Light.parse(output_parsed), output_parsed);
  const streamed = await client.responses.stream(body).finalResponse();
  assert.deepEqual(streamed.output_parsed, output_parsed);
});

test("a response's function is called with what its schema accepts", async () => {
  const tools = [zodResponsesFunction({ name: "light", parameters: Light })];
  const body = { ...response, tools, tool_choice: "required", parallel_tool_calls: false };
  const [call] = (await client.responses.parse(body)).output;
  assert.equal(call.name, "light");
  assert.deepEqual(Light.parse(call.parsed_arguments), call.parsed_arguments);
});
