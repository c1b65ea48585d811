// What is asked of an answer: a JSON Schema, tools. Each is a text that the user may edit. Presets fill it, and bring a
// message that shows it.

const TEXT = { type: "string" };
const objectOf = (properties) => ({
  type: "object", properties, required: Object.keys(properties), additionalProperties: false,
});
const toolOf = (name, description, properties) => ({
  type: "function", function: { name, description, parameters: objectOf(properties) },
});

const SCHEMAS = {
  person: ["A person", objectOf({
    name: { type: "string", maxLength: 40 },
    age: { type: "integer", minimum: 0, maximum: 130 },
    languages: { type: "array", items: { type: "string", maxLength: 20 }, maxItems: 4 },
  }), "Anna Meyer is 34 and speaks French and Greek."],
  steps: ["Steps to an answer", objectOf({
    steps: { type: "array", minItems: 1, maxItems: 5, items: objectOf({ explanation: TEXT, output: TEXT }) },
    answer: TEXT,
  }), "What is 2 + 3?"],
  verdict: ["A verdict", objectOf({
    verdict: { enum: ["positive", "neutral", "negative"] },
    confidence: { type: "number", minimum: 0, maximum: 1 },
    reason: { type: "string", maxLength: 200 },
  }), "The concert was wonderful."],
};

const WEATHER = toolOf("get_weather", "The weather in a city now", {
  city: TEXT, unit: { enum: ["celsius", "fahrenheit"] },
});
const TOOLS = {
  get_weather: ["get_weather", [WEATHER], "What is the weather in Paris?"],
  several: [
    "get_weather, get_time", [WEATHER, toolOf("get_time", "The time in a city now", { city: TEXT })],
    "What time is it in Rome?",
  ],
};

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

// Both texts: where they are, what they must be, and what is said of them.
const ASKED = [
  {
    id: "schema", box: "format", presets: SCHEMAS, none: "text",
    wrong: (value) => (isObject(value) || typeof value === "boolean" ? "" : "A schema is a JSON object."),
    state: () => "JSON Schema",
  },
  {
    id: "tools", box: "toolbox", presets: TOOLS, none: "none",
    wrong: (value) => (Array.isArray(value) && value.every(isObject) ? "" : "Tools are a JSON array of objects."),
    state: (value) => value.map((one) => one.function?.name ?? "?").join(", ") || "none",
  },
];

// The value of one of the texts, or undefined if it is empty; or why it cannot be one.
function readAsked({ id, wrong }) {
  const written = $(id).value.trim();
  if (!written) return {};
  try {
    const value = JSON.parse(written);
    const error = wrong(value);
    return error ? { error } : { value };
  } catch (error) {
    return { error: error.message };
  }
}

function checkAsked(asked) {
  const { value, error } = readAsked(asked);
  $(asked.id + "-error").textContent = error ?? "";
  $(asked.id).setAttribute("aria-invalid", String(Boolean(error)));
  $(asked.id + "-state").textContent = error ? "not valid" : value === undefined ? asked.none : asked.state(value);
}

// The first text that is not valid gets the focus; without one, true.
function areAskedValid() {
  const bad = ASKED.find((asked) => !$(asked.box).hidden && readAsked(asked).error);
  if (!bad) return true;
  $(bad.box).open = true;
  $(bad.id).focus();
  return false;
}

// The fields of a request. A server without a chat template takes no tools.
function askedFields() {
  const [schema, tools] = ASKED.map((asked) => ($(asked.box).hidden ? undefined : readAsked(asked).value));
  const fields = {};
  if (schema !== undefined) {
    const json_schema = { name: $("schema-name").value.trim(), schema, strict: true };
    fields.response_format = { type: "json_schema", json_schema };
  }
  if (tools?.length) {
    fields.tools = tools;
    fields.tool_choice = $("tool-choice").value;
  }
  return fields;
}

let suggested = "";

// Not over what the user has written.
function suggest(message) {
  const input = $("input");
  if (input.value !== "" && input.value !== suggested) return;
  input.value = suggested = message;
  input.dispatchEvent(new Event("input"));
}

function setUpAsked(asked) {
  const preset = $(asked.id + "-preset"), written = $(asked.id);
  preset.append(new Option(asked.none, "none"));
  for (const [name, [title]] of Object.entries(asked.presets)) preset.append(new Option(title, name));
  preset.append(new Option("your own", "own"));
  preset.addEventListener("change", () => {
    const chosen = asked.presets[preset.value];
    if (chosen) written.value = JSON.stringify(chosen[1], null, 2);
    else if (preset.value === "none") written.value = "";
    else written.focus();
    checkAsked(asked);
    suggest(chosen?.[2] ?? "");
  });
  written.addEventListener("input", () => {
    preset.value = written.value.trim() ? "own" : "none";
    checkAsked(asked);
  });
  checkAsked(asked);
}
ASKED.forEach(setUpAsked);

