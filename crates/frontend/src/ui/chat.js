// The conversation: what is sent, and answers as they stream.

let turns = []; // messages, as the API takes them
let abort = null;
let machine = null;
let awaited = null; // calls whose results the user may give

function addTurn(role, who) {
  $("empty")?.remove();
  const turn = make("div", "turn " + role);
  turn.append(make("div", "who", who));
  $("log").append(turn);
  return turn;
}

function addUserTurn(message) {
  addTurn("user", "You").append(make("div", "text", message));
  scrollDown(true);
}

// Tokens can come faster than frames: the text grows once per frame, in one node.
function appender(box) {
  const text = document.createTextNode("");
  box.append(text);
  let pending = "";
  const flush = () => {
    if (!pending) return;
    text.appendData(pending);
    pending = "";
    scrollDown(false);
  };
  return {
    flush,
    add(piece) {
      if (!pending) requestAnimationFrame(flush);
      pending += piece;
    },
  };
}

// The same for a value, which is drawn anew. Drawing gets a fifth of the time: long values take longer.
function valueAppender(box) {
  let text = "", read = parsePartial(""), isDrawn = true, took_ms = 0;
  const flush = () => {
    if (isDrawn) return;
    isDrawn = true;
    const begun = performance.now();
    read = parsePartial(text);
    box.replaceChildren(valueView(read));
    took_ms = performance.now() - begun;
    scrollDown(false);
  };
  return {
    flush,
    isWhole: () => isWhole(read),
    add(piece) {
      text += piece;
      if (isDrawn) setTimeout(() => requestAnimationFrame(flush), 4 * took_ms);
      isDrawn = false;
    },
  };
}

function foldable(cls, title) {
  const box = make("details", cls);
  box.append(make("summary", "", title));
  return box;
}

// A value that is drawn anew is not read out again and again: the note says when it is whole.
function makeValueBox() {
  const box = make("pre", "value");
  box.setAttribute("aria-live", "off");
  return box;
}

function addAnswer(hasSchema) {
  const turn = addTurn("assistant", "Model");
  turn.setAttribute("aria-busy", "true");
  const reasoning = foldable("reasoning", "Reasoning");
  const thought = make("div", "thought");
  reasoning.append(thought);
  reasoning.open = reasoning.hidden = true;
  const value = makeValueBox(), box = make("div", "text"), calls = make("div"), note = make("div", "note");
  const raw = hasSchema ? foldable("raw", "Raw text") : box;
  if (hasSchema) raw.append(box);
  value.hidden = !hasSchema;
  turn.append(reasoning, value, raw, calls, note);
  scrollDown(true);
  return {
    turn, reasoning, callBox: calls, note,
    said: "", thought: "", calls: [], finish: null, usage: null, firstAt: 0,
    shown: appender(box), shownThought: appender(thought),
    shownValue: hasSchema ? valueAppender(value) : null,
  };
}

function takeChunk(answer, chunk) {
  if (chunk.error) throw new Error(refusal(chunk.error));
  answer.usage = chunk.usage || answer.usage;
  const choice = chunk.choices[0];
  if (!choice) return;
  answer.finish = choice.finish_reason ?? answer.finish;
  const thinking = choice.delta?.reasoning_content ?? "";
  const said = choice.delta?.content ?? choice.text ?? "";
  const calls = choice.delta?.tool_calls ?? [];
  if (thinking || said || calls.length) answer.firstAt ||= performance.now();
  if (thinking) takeThought(answer, thinking);
  if (said) takeText(answer, said);
  for (const piece of calls) takeCall(answer, piece);
}

function takeThought(answer, piece) {
  answer.reasoning.hidden = false;
  answer.thought += piece;
  answer.shownThought.add(piece);
}

function takeText(answer, piece) {
  answer.said += piece;
  answer.shown.add(piece);
  answer.shownValue?.add(piece);
}

function takeCall(answer, piece) {
  const call = (answer.calls[piece.index] ??= addCall(answer));
  if (piece.id) call.id = piece.id;
  if (piece.function?.name) {
    call.name += piece.function.name;
    call.title.textContent = "Calls " + call.name;
  }
  if (piece.function?.arguments) {
    call.arguments += piece.function.arguments;
    call.shown.add(piece.function.arguments);
  }
}

function addCall(answer) {
  const box = make("section", "call"), title = make("h3"), value = makeValueBox();
  box.append(title, value);
  answer.callBox.append(box);
  return { id: "", name: "", arguments: "", box, title, shown: valueAppender(value) };
}

function endAnswer(answer) {
  const shown = [answer.shown, answer.shownThought, answer.shownValue, ...answer.calls.map((c) => c?.shown)];
  shown.forEach((one) => one?.flush());
  answer.turn.setAttribute("aria-busy", "false");
}

// What of an answer goes on in the conversation, or null. A call that was cut off cannot be answered.
function messageOf(answer) {
  const calls = answer.finish === "tool_calls" ? answer.calls.filter(Boolean) : [];
  if (!answer.said && !calls.length) return null;
  const message = { role: "assistant", content: answer.said || null };
  if (!calls.length) return message;
  if (answer.thought) message.reasoning_content = answer.thought;
  message.tool_calls = calls.map((call) => ({
    id: call.id, type: "function", function: { name: call.name, arguments: call.arguments },
  }));
  return message;
}

// A field for each call's result, and what sends them as messages of role `tool`.
function askForResults(answer) {
  const calls = answer.calls.filter(Boolean);
  const fields = calls.map((call) => {
    const label = make("label", "", "Result of " + call.name);
    const field = make("textarea", "code");
    field.rows = 2;
    label.append(field);
    call.box.append(label);
    return field;
  });
  const go = make("button", "go", calls.length > 1 ? "Send results" : "Send result");
  go.type = "button";
  const close = (isClosed) => {
    for (const field of fields) field.readOnly = isClosed;
    go.hidden = isClosed;
  };
  const sendAll = () => {
    if (abort || go.hidden) return;
    exchange(calls.map((call, i) => ({ role: "tool", tool_call_id: call.id, content: fields[i].value })));
  };
  fields.forEach((field, i) => onEnter(field, () => (i + 1 < fields.length ? fields[i + 1].focus() : sendAll())));
  go.addEventListener("click", sendAll);
  answer.callBox.append(go);
  scrollDown(true);
  fields[0].focus();
  return { close };
}

function onEnter(field, act) {
  field.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    act();
  });
}

function scrollDown(always) {
  const log = $("log");
  if (always || log.scrollHeight - log.scrollTop - log.clientHeight < 80) log.scrollTop = log.scrollHeight;
}

function setBusy(busy) {
  $("send").textContent = busy ? "Stop" : "Send";
}

async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    buffer += value;
    let end;
    while ((end = buffer.indexOf("\n\n")) >= 0) {
      const frame = buffer.slice(0, end);
      buffer = buffer.slice(end + 2);
      if (frame.startsWith("data: ")) yield frame.slice(6);
    }
  }
}

function requestBody() {
  const body = { model: machine?.model, stream: true, stream_options: { include_usage: true } };
  const system = $("system").value.trim();
  const messages = system ? [{ role: "system", content: system }, ...turns] : turns;
  if (machine && !machine.has_chat_template) body.prompt = turns.at(-1).content;
  else body.messages = messages;
  if ($("temperature").value !== "") body.temperature = Number($("temperature").value);
  if ($("max").value !== "") body.max_tokens = Number($("max").value);
  return Object.assign(body, askedFields());
}

// What the server says of a request that it refuses, with the field if the text does not name it.
function refusal({ message, param }) {
  return param && !message.includes(param) ? `${message} (${param})` : message;
}

async function failure(response) {
  const said = await response.text();
  try {
    return refusal(JSON.parse(said).error);
  } catch {
    return `${response.status}: ${said}`; // from something between here and the server
  }
}

async function stream(body, answer, signal) {
  const headers = { "content-type": "application/json" };
  if ($("key").value) headers.authorization = "Bearer " + $("key").value;
  const path = body.prompt === undefined ? "/v1/chat/completions" : "/v1/completions";
  const response = await fetch(path, { method: "POST", headers, body: JSON.stringify(body), signal });
  if (!response.ok) throw new Error(await failure(response));
  for await (const data of events(response)) {
    if (data !== "[DONE]") takeChunk(answer, JSON.parse(data));
  }
}

// Adds messages to the conversation and streams the answer. Without one they are taken back.
async function exchange(added) {
  const talk = turns; // "Clear" begins another one
  const before = talk.length;
  const results = awaited;
  awaited = null;
  results?.close(true);
  talk.push(...added);
  const body = requestBody();
  const answer = addAnswer(body.response_format !== undefined);
  abort = new AbortController();
  setBusy(true);
  const begun = performance.now();
  let failed = null;
  try {
    await stream(body, answer, abort.signal);
  } catch (error) {
    failed = error.name === "AbortError" ? "stopped" : error.message;
    answer.note.classList.toggle("error", error.name !== "AbortError");
  }
  endAnswer(answer);
  answer.note.textContent = failed ?? summary(begun, answer);
  abort = null;
  setBusy(false);
  if (talk !== turns) return;
  const message = messageOf(answer);
  if (message) {
    talk.push(message);
  } else {
    talk.length = before;
    awaited = results;
    results?.close(false);
  }
  if (message?.tool_calls) awaited = askForResults(answer);
  else $("input").focus();
}

function summary(begun, { usage, firstAt, finish, shownValue }) {
  const now = performance.now();
  const tokens = usage?.completion_tokens ?? 0;
  const parts = [`${tokens} tokens`];
  if (firstAt) parts.push(`first after ${seconds((firstAt - begun) / 1000)}`);
  if (firstAt && tokens > 1) parts.push(`${((tokens - 1) / Math.max(now - firstAt, 1) * 1000).toFixed(1)} per second`);
  if (finish === "length") parts.push("cut off by the limit of tokens");
  if (shownValue) parts.push(shownValue.isWhole() ? "the value is whole" : "the value is not whole");
  return parts.join(" · ");
}

$("form").addEventListener("submit", (event) => {
  event.preventDefault();
  if (abort) return abort.abort();
  const message = $("input").value.trim();
  if (!message || !areAskedValid()) return;
  $("input").value = "";
  grow();
  addUserTurn(message);
  exchange([{ role: "user", content: message }]);
});
$("clear").addEventListener("click", () => {
  abort?.abort();
  turns = [];
  awaited = null;
  $("log").replaceChildren();
  $("input").focus();
});
onEnter($("input"), () => {
  if (!abort) $("form").requestSubmit();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") abort?.abort();
});
function grow() {
  const input = $("input");
  input.style.height = "auto";
  input.style.height = input.scrollHeight + 2 + "px";
}
$("input").addEventListener("input", grow);

