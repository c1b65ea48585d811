// The page in headless Chromium: it loads without the network, chats by streaming, stops, and shows
// what the machine does. An object of a schema is seen while it grows, and a refusal as the server words it.
import assert from "node:assert/strict";
import path from "node:path";
import test from "node:test";
import { chromium } from "playwright-core";

const url = process.env.SACCADE_URL;
const shots = process.env.SACCADE_SHOTS;
const flags = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: flags });
test.after(() => browser.close());

async function open(options = {}) {
  const page = await browser.newPage(options);
  const problems = [];
  page.on("pageerror", (e) => problems.push(String(e)));
  page.on("console", (m) => m.type() === "error" && problems.push(m.text()));
  page.on("request", (r) => r.url().startsWith(url) || problems.push(`outside: ${r.url()}`));
  await page.goto(url);
  await page.waitForFunction(() => document.querySelector("#phase").textContent.includes("ready"));
  return { page, problems };
}

async function shoot(page, name) {
  if (shots) await page.screenshot({ path: path.join(shots, name), fullPage: true });
}

test("chat streams an answer, and the cards move", async () => {
  const { page, problems } = await open();
  assert.equal(await page.textContent("#model"), "saccade-tiny");
  await page.click("#settings summary"); // the settings
  assert.equal(await page.isVisible("#keyrow"), false, "no key is asked for where none is needed");
  await page.fill("#temperature", "0");
  await page.fill("#input", "Hello! Who are you?");
  await page.press("#input", "Enter");
  await page.waitForFunction(() => document.querySelector("#log").textContent.includes("Saccade"));
  await page.waitForFunction(() => document.querySelector("#send").textContent.trim() === "Send");
  await page.waitForFunction(() => /\d/.test(document.querySelector("#ttft").textContent));
  assert.match(await page.textContent("#kvtext"), /\d/);
  await shoot(page, "page-light.png");
  assert.deepEqual(problems, []);
  await page.close();
});

test("a long answer can be stopped", async () => {
  const { page, problems } = await open({ colorScheme: "dark" });
  // Force a long answer, whatever the model would say.
  await page.route("**/v1/chat/completions", (route) =>
    route.continue({ postData: { ...route.request().postDataJSON(), ignore_eos: true } }),
  );
  await page.click("#settings summary");
  await page.fill("#max", "1500");
  await page.fill("#temperature", "1");
  await page.fill("#input", "Continue this: in the beginning");
  await page.press("#input", "Enter");
  await page.waitForFunction(() => document.querySelector("#send").textContent.trim() !== "Send");
  await page.waitForFunction(() => document.querySelector("#log").textContent.length > 80);
  await shoot(page, "page-dark.png");
  await page.click("#send");
  await page.waitForFunction(() => document.querySelector("#send").textContent.trim() === "Send");
  await page.waitForFunction(() => document.querySelector("#running").textContent.trim() === "0");
  assert.deepEqual(problems, []);
  await page.close();
});

test("an object of a schema is seen as it grows", async () => {
  const { page, problems } = await open();
  await page.click("#format summary");
  await page.selectOption("#schema-preset", "verdict");
  // So long, and over so slow a line, that it is drawn more than once however busy the machine is.
  const schema = JSON.parse(await page.inputValue("#schema"));
  schema.properties.reason.minLength = 150;
  await page.fill("#schema", JSON.stringify(schema));
  const session = await page.context().newCDPSession(page);
  const line = { offline: false, latency: 0, downloadThroughput: 20_000, uploadThroughput: -1 };
  await session.send("Network.emulateNetworkConditions", line);
  assert.equal(await page.textContent("#schema-error"), "");
  // Every state that the page shows on the way.
  await page.evaluate(() => {
    globalThis.states = [];
    const look = () => states.push(document.querySelector(".value")?.textContent ?? "");
    new MutationObserver(look).observe(document.querySelector("#log"), { childList: true, subtree: true });
  });
  await page.fill("#input", "Is a saccade fast?");
  await page.press("#input", "Enter");
  await page.waitForFunction(() => document.querySelector(".note")?.textContent.includes("the value is whole"));
  const whole = await page.textContent(".value");
  const value = JSON.parse(whole);
  assert.deepEqual(Object.keys(value), ["verdict", "confidence", "reason"]);
  assert.deepEqual(value, JSON.parse(await page.textContent(".raw .text")));
  const states = await page.evaluate(() => states.filter((state) => state));
  assert.ok(states.some((state) => state.length < whole.length / 2), "nothing was shown before the end");
  assert.ok(states.every((state) => whole.startsWith(state.trimEnd())), "what was shown was taken back");
  await shoot(page, "page-object.png");
  assert.deepEqual(problems, []);
  await page.close();
});

test("the model fills in a form", async () => {
  const { page, problems } = await open();
  await page.click("#format summary");
  await page.selectOption("#schema-preset", "person");
  assert.equal(await page.inputValue("#input"), "Anna Meyer is 34 and speaks French and Greek.");
  await page.click("#settings summary");
  await page.fill("#temperature", "0");
  await page.press("#input", "Enter");
  await page.waitForFunction(() => document.querySelector(".note")?.textContent.includes("the value is whole"));
  const value = JSON.parse(await page.textContent(".value"));
  assert.deepEqual(value, { name: "Anna Meyer", age: 34, languages: ["French", "Greek"] });
  assert.deepEqual(problems, []);
  await page.close();
});

test("the model calls a function and says what it returned", async () => {
  const { page, problems } = await open();
  await page.click("#settings summary");
  await page.fill("#temperature", "0");
  await page.click("#toolbox summary");
  await page.selectOption("#tools-preset", "get_weather");
  await page.press("#input", "Enter");
  await page.waitForSelector(".call textarea");
  assert.equal(await page.textContent(".call h3"), "Calls get_weather");
  assert.equal(JSON.parse(await page.textContent(".call .value")).city, "Paris");
  await shoot(page, "page-call.png");
  await page.fill(".call textarea", "sunny, 21 degrees");
  await page.press(".call textarea", "Enter");
  await page.waitForFunction(() => document.querySelector("#send").textContent.trim() === "Send");
  assert.match(await page.textContent(".turn:last-child .text"), /21 degrees/);
  assert.deepEqual(problems, []);
  await page.close();
});

test("a suggestion does not replace what the user has written", async () => {
  const { page } = await open();
  await page.fill("#input", "My own words");
  await page.click("#format summary");
  await page.selectOption("#schema-preset", "person");
  assert.equal(await page.inputValue("#input"), "My own words");
  await page.close();
});

test("a tool that is refused is refused in the server's words", async () => {
  const { page, problems } = await open();
  await page.click("#toolbox summary");
  await page.fill("#tools", JSON.stringify([{ type: "function", function: { name: "a b" } }]));
  await page.fill("#input", "The weather in Paris?");
  await page.press("#input", "Enter");
  await page.waitForFunction(() => document.querySelector(".note.error")?.textContent.includes("tools"));
  await shoot(page, "page-tools.png");
  assert.deepEqual(problems.filter((problem) => !problem.includes("status of 400")), []);
  await page.close();
});
