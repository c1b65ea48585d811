// JSON that is still being written: parsePartial() reads a prefix, valueView() shows it.
//
// A node has a `kind` and is `open` until its end is read: object (`entries` of key and value), array
// (`items`), string and word (`text`), and other (`text` that is no JSON, to the end).

// Deeper values are shown as text: the reader is recursive.
const MAX_DEPTH = 100;

function parsePartial(text) {
  const at = { text, i: 0 };
  const value = readValue(at, 0);
  skipSpace(at);
  return { value, rest: text.slice(at.i) };
}

function skipSpace(at) {
  while (" \t\r\n".includes(at.text[at.i] ?? "x")) at.i += 1;
}

// The value at this place, or null if the text ends before it.
function readValue(at, depth) {
  skipSpace(at);
  if (at.i >= at.text.length) return null;
  const c = at.text[at.i];
  if (c === '"') return readString(at);
  if (c !== "{" && c !== "[") return readWord(at);
  if (depth >= MAX_DEPTH) return readOther(at);
  return c === "{" ? readObject(at, depth) : readArray(at, depth);
}

function readObject(at, depth) {
  const node = { kind: "object", entries: [], open: true };
  at.i += 1;
  for (;;) {
    skipSpace(at);
    const c = at.text[at.i];
    if (c === undefined) return node;
    if (c === "}") return closeNode(node, at);
    if (c === ",") at.i += 1;
    else if (c === '"') node.entries.push(readEntry(at, depth));
    else node.entries.push({ key: null, value: readOther(at) });
  }
}

function readEntry(at, depth) {
  const key = readString(at);
  skipSpace(at);
  if (at.i >= at.text.length) return { key, value: null };
  if (at.text[at.i] !== ":") return { key, value: readOther(at) };
  at.i += 1;
  return { key, colon: true, value: readValue(at, depth + 1) };
}

function readArray(at, depth) {
  const node = { kind: "array", items: [], open: true };
  at.i += 1;
  for (;;) {
    skipSpace(at);
    const c = at.text[at.i];
    if (c === undefined) return node;
    if (c === "]") return closeNode(node, at);
    if (c === ",") at.i += 1;
    else node.items.push(readValue(at, depth + 1));
  }
}

function closeNode(node, at) {
  at.i += 1;
  node.open = false;
  return node;
}

function readString(at) {
  const { text } = at;
  const begin = at.i + 1;
  let end = begin, escape = -1;
  while (end < text.length && text[end] !== '"') {
    if (text[end] === "\\") escape = end++;
    end += 1;
  }
  const open = end >= text.length;
  let last = Math.min(end, text.length);
  // An escape that is not whole yet is left out: it has no character.
  const escapeLength = text[escape + 1] === "u" ? 6 : 2;
  if (open && escape >= 0 && escape + escapeLength > text.length) last = escape;
  at.i = open ? text.length : end + 1;
  return { kind: "string", text: unescapeText(text.slice(begin, last)), open };
}

function unescapeText(text) {
  try {
    return JSON.parse(`"${text}"`);
  } catch {
    return text; // a raw line feed, say: shown as it came
  }
}

function readWord(at) {
  const word = /[-+.\w]*/y;
  word.lastIndex = at.i;
  const text = word.exec(at.text)[0];
  const open = at.i + text.length === at.text.length;
  if (!(open ? mayBecomeWord(text) : isWord(text))) return readOther(at);
  at.i += text.length;
  return { kind: "word", text, open };
}

const isWord = (text) => /^(true|false|null|-?\d+(\.\d+)?([eE][-+]?\d+)?)$/.test(text);
const mayBecomeWord = (text) =>
  /^-?(\d+(\.\d*)?([eE][-+]?\d*)?)?$/.test(text) || ["true", "false", "null"].some((w) => w.startsWith(text));

function readOther(at) {
  const text = at.text.slice(at.i);
  at.i = at.text.length;
  return { kind: "other", text, open: true };
}

// Whether all of a value has come. A number at the end of an answer is whole where it could go on.
function isWhole({ value, rest }) {
  return value !== null && rest === "" && (!value.open || (value.kind === "word" && isWord(value.text)));
}

// The value as pretty-printed JSON. What is open has the class `open`; the cursor is behind all of it.
function valueView({ value, rest }) {
  const view = document.createDocumentFragment();
  if (value) appendNode(view, value, "");
  if (rest) view.append(make("span", "error", rest));
  view.append(make("span", "cursor"));
  return view;
}

function appendNode(view, node, indent) {
  if (node.kind === "object") appendList(view, "{}", node, node.entries, indent, appendEntry);
  else if (node.kind === "array") appendList(view, "[]", node, node.items, indent, appendNode);
  else if (node.kind === "other") view.append(make("span", "error", node.text));
  else appendScalar(view, node.kind, node);
}

function appendScalar(view, cls, node) {
  const quoted = node.kind === "string" ? JSON.stringify(node.text) : node.text;
  const text = node.kind === "string" && node.open ? quoted.slice(0, -1) : quoted;
  view.append(make("span", node.open ? cls + " open" : cls, text));
}

function appendList(view, brackets, node, parts, indent, appendPart) {
  const cls = node.open ? "bracket open" : "bracket";
  const inner = indent + "  ";
  view.append(make("span", cls, brackets[0]));
  parts.forEach((part, i) => {
    view.append((i ? ",\n" : "\n") + inner);
    appendPart(view, part, inner);
  });
  if (node.open) return;
  if (parts.length) view.append("\n" + indent);
  view.append(make("span", cls, brackets[1]));
}

function appendEntry(view, { key, colon, value }, indent) {
  if (key) appendScalar(view, "key", key);
  if (colon) view.append(": ");
  if (value) appendNode(view, value, indent);
}

