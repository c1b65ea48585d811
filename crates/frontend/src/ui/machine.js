// What the machine does now: `/ui/state`, once a second.

const POINTS = 120;
const lines = { rateline: [], ttft50: [], ttft99: [], tbt50: [], tbt99: [] };
let last = null;

function seconds(s) {
  if (s < 0.001) return (s * 1e6).toFixed(0) + " µs";
  if (s < 1) return (s * 1e3).toFixed(s < 0.01 ? 2 : 0) + " ms";
  return s.toFixed(2) + " s";
}

function draw(ids) {
  const top = Math.max(1e-9, ...ids.flatMap((id) => lines[id].filter((v) => v !== null)));
  for (const id of ids) {
    let path = "", pen = "M";
    lines[id].forEach((v, i) => {
      if (v === null) { pen = "M"; return; }
      path += `${pen}${i + POINTS - lines[id].length} ${(42 - 40 * v / top).toFixed(1)}`;
      pen = "L";
    });
    $(id).setAttribute("d", path);
  }
}

function push(id, value) {
  lines[id].push(value);
  if (lines[id].length > POINTS) lines[id].shift();
}

function bar(element, parts, total) {
  element.replaceChildren(...parts.filter(([, n]) => n > 0).map(([cls, n]) => {
    const piece = make("i", cls);
    piece.style.width = 100 * n / Math.max(total, 1) + "%";
    return piece;
  }));
}

function showSlots(slots) {
  const [empty, pending, prefill, decode, paused, done, fetchPending, fetching] = slots;
  const total = slots.reduce((a, b) => a + b, 0);
  const parts = [
    ["pending", pending, "pending"], ["prefill", prefill + fetchPending + fetching, "prefill"],
    ["decode", decode, "decode"], ["paused", paused, "paused"], ["free", empty + done, "free"],
  ];
  bar($("slots"), parts.filter(([cls]) => cls !== "free"), total);
  $("slots").setAttribute("aria-label", parts.map(([, n, name]) => `${n} ${name}`).join(", "));
  $("legend").replaceChildren(...parts.map(([cls, n, name]) => {
    const item = make("span");
    item.append(make("b", cls), `${name} ${n}`);
    return item;
  }));
}

// Share of prompt tokens that were not computed, over the looks of the last minute.
const looks = [];
function hitShare(now, queries, hits) {
  const newest = looks.at(-1);
  if (newest && queries < newest.queries) looks.length = 0; // the device began anew
  looks.push({ at: now, queries, hits });
  while (looks.length > 2 && looks[1].at <= now - 60000) looks.shift();
  const asked = queries - looks[0].queries;
  return asked > 0 ? (100 * (hits - looks[0].hits) / asked).toFixed(0) + " %" : "–";
}

function show(state) {
  machine = state;
  $("model").textContent = state.model;
  document.title = `${state.model} · Saccade`;
  $("keyrow").hidden = !state.needs_key;
  $("toolbox").hidden = !state.has_chat_template;
  const loading = state.phase === "loading" && state.load_total_bytes > 0;
  $("phase").textContent = loading
    ? `loading ${Math.floor(100 * state.load_done_bytes / state.load_total_bytes)} %`
    : state.ready ? "ready" : "device " + state.phase;
  $("phase").classList.toggle("ready", state.ready);
  $("running").textContent = state.running;
  $("waiting").textContent = state.waiting;
  $("held").textContent = state.paused;
  showSlots(state.slots);
  bar($("kv"), [["decode", state.blocks_used]], state.num_blocks);
  $("kvtext").textContent = `${state.blocks_used} of ${state.num_blocks}`;
  $("kvshare").textContent = (100 * state.blocks_used / Math.max(state.num_blocks, 1)).toFixed(0) + " %";
  $("kv").setAttribute("aria-label", $("kvtext").textContent + " KV blocks in use");
  const now = performance.now();
  $("hits").textContent = hitShare(now, state.prefix_query_tokens, state.prefix_hit_tokens);
  if (last) {
    const rate = Math.max(0, state.recent.tokens_total - last.tokens) / (now - last.at) * 1000;
    $("rate").textContent = rate < 10 ? rate.toFixed(1) : Math.round(rate).toLocaleString("en");
    push("rateline", rate);
    draw(["rateline"]);
  }
  last = { tokens: state.recent.tokens_total, at: now };
  for (const [name, q] of [["ttft", state.recent.ttft], ["tbt", state.recent.tbt]]) {
    $(name).textContent = q ? `${seconds(q.p50_s)} / ${seconds(q.p99_s)}` : "–";
    push(name + "50", q ? q.p50_s : null);
    push(name + "99", q ? q.p99_s : null);
    draw([name + "50", name + "99"]);
  }
  $("foot").textContent = `${state.steps.toLocaleString("en")} steps · ${state.max_num_seqs} seats · `
    + `${state.max_model_len} tokens at most · saccade ${state.version}`;
}

async function watch() {
  if (!document.hidden) {
    try {
      show(await (await fetch("/ui/state")).json());
    } catch {
      $("phase").textContent = "no answer";
      $("phase").classList.remove("ready");
    }
  }
  setTimeout(watch, 1000);
}
watch();
