// Every report named in SACCADE_REPORTS (one path per line), opened from disk in headless Chromium.
import assert from "node:assert/strict";
import fs from "node:fs";
import path from "node:path";
import test from "node:test";
import { pathToFileURL } from "node:url";
import { chromium } from "playwright-core";
import { inspectPlots, inspectText } from "./inspect.mjs";

const reports = process.env.SACCADE_REPORTS.split("\n").filter(Boolean);
const shots = process.env.SACCADE_SHOTS;
const browser = await chromium.launch({
  executablePath: "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"],
});
test.after(() => browser.close());

// A4 less the margins of the page's print style, in CSS pixels.
const PAPER = { width: 695, height: 1016 };

// A page that may load the report and nothing else, and remembers what else it tried.
async function open(report, options = {}) {
  const context = await browser.newContext({ offline: true, viewport: { width: 1100, height: 900 }, ...options });
  const page = await context.newPage();
  const problems = [];
  const self = pathToFileURL(report).href;
  page.on("pageerror", (e) => problems.push(String(e)));
  page.on("console", (m) => ["error", "warning"].includes(m.type()) && problems.push(m.text()));
  page.on("request", (r) => {
    const inside = r.url() === self || r.url().startsWith("blob:") || r.url() === "data:,";
    if (!inside) problems.push(`asked for ${r.url()}`);
  });
  await page.goto(self);
  return { page, problems, close: () => context.close() };
}

async function shoot(page, report, what) {
  if (!shots) return;
  const name = `${path.basename(report, ".html")}-${what}.png`;
  await page.screenshot({ path: path.join(shots, name), fullPage: true });
}

for (const report of reports) {
  const name = path.basename(report);

  test(`${name}: every plot is drawn, its labels apart, and nothing is asked of a network`, async () => {
    for (const colorScheme of ["light", "dark"]) {
      const { page, problems, close } = await open(report, { colorScheme });
      assert.deepEqual(await page.evaluate(inspectPlots), [], colorScheme);
      assert.deepEqual(await page.evaluate(inspectText), [], colorScheme);
      await shoot(page, report, colorScheme);
      assert.deepEqual(problems, []);
      await close();
    }
  });

  test(`${name}: a narrow window scrolls no further than its tables`, async () => {
    const { page, problems, close } = await open(report, { viewport: { width: 420, height: 900 } });
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    assert.ok(wide <= 0, `${wide} pixels beyond the window`);
    assert.deepEqual(problems, []);
    await shoot(page, report, "narrow");
    await close();
  });

  test(`${name}: the plots are there without scripts`, async () => {
    const { page, close } = await open(report, { javaScriptEnabled: false });
    assert.equal(await page.evaluate(() => document.querySelector("#tip").hidden), true);
    assert.deepEqual(await page.evaluate(inspectPlots), []);
    await close();
  });

  test(`${name}: in print it is light, whole, and no figure is higher than a sheet`, async () => {
    const { page, problems, close } = await open(report, { colorScheme: "dark", viewport: PAPER });
    await page.emulateMedia({ media: "print", colorScheme: "dark" });
    const printed = await page.evaluate(() => ({
      paper: getComputedStyle(document.body).backgroundColor,
      headings: [...document.querySelectorAll("main > section:not(#raw) > h2")].map((h) => h.textContent),
      figures: [...document.querySelectorAll("figure")].map((f) => ({
        title: f.querySelector("figcaption").textContent,
        height: f.getBoundingClientRect().height,
        whole: getComputedStyle(f).breakInside,
      })),
    }));
    assert.equal(printed.paper, "rgb(255, 255, 255)");
    for (const figure of printed.figures) {
      assert.equal(figure.whole, "avoid", figure.title);
      assert.ok(figure.height > 60 && figure.height < PAPER.height, `${figure.title}: ${figure.height} pixels`);
    }
    assert.deepEqual(await page.evaluate(inspectPlots), []);
    const pdf = await page.pdf({ format: "A4", preferCSSPageSize: true, outline: true, tagged: true });
    if (shots) fs.writeFileSync(path.join(shots, name.replace(".html", ".pdf")), pdf);
    assert.deepEqual(missing(pdf, printed.headings), []);
    assert.deepEqual(problems, []);
    await close();
  });
}

// Headings that the PDF's outline lacks. Its strings are UTF-16 in hexadecimal or plain.
function missing(pdf, headings) {
  const text = pdf.toString("latin1");
  const utf16 = (s) => Buffer.from(s, "utf16le").swap16().toString("hex");
  const found = (h) => text.includes(`(${h})`) || text.toLowerCase().includes(utf16(h));
  return headings.filter((h) => !found(h));
}

if (process.env.SACCADE_GALLERY) {
  const gallery = process.env.SACCADE_GALLERY;

  test("gallery: the pointer shows values, and the raw data can be saved", async () => {
    const { page, problems, close } = await open(gallery);
    const grouped = page.locator("figure", { hasText: "Inflation of TTFT P99" });
    const bar = grouped.locator(".marks .br").first();
    await bar.scrollIntoViewIfNeeded();
    const box = await bar.boundingBox();
    await page.mouse.move(box.x + box.width / 2, box.y + 2);
    assert.match(await page.locator("#tip").textContent(), /^saccade\nnone\nInflation: 1 ×$/);
    const saved = page.waitForEvent("download");
    await page.click("a.save");
    const file = await (await saved).path();
    const data = JSON.parse(fs.readFileSync(file, "utf8"));
    assert.equal(data.hostile, "</script><!--");
    assert.equal(data.rates.length, 13);
    assert.deepEqual(problems, []);
    await close();
  });

  test("gallery: a hostile label stays a label", async () => {
    const { page, close } = await open(gallery);
    assert.equal(await page.title(), "Gallery of plots");
    const captions = await page.locator("figcaption").allTextContents();
    assert.ok(captions.some((c) => c.includes("<script>document.title='owned'</script>")));
    assert.equal(await page.locator("[onload]").count(), 0);
    await close();
  });

  test("gallery: the policy stops a script that got in, and any request", async () => {
    const html = fs.readFileSync(gallery, "utf8");
    const evil = "<script>document.title='owned'</script><img src='https://example.com/x.png'>";
    const copy = gallery.replace(".html", "-evil.html");
    fs.writeFileSync(copy, html.replace("<main>", `<main>${evil}`));
    const { page, problems, close } = await open(copy);
    assert.equal(await page.title(), "Gallery of plots");
    assert.ok(problems.some((p) => p.includes("Content Security Policy")), problems.join("\n"));
    await close();
  });

  test("gallery: the inspection itself finds a plot without marks, marks outside, labels that meet", async () => {
    const { page, close } = await open(gallery);
    const found = await page.evaluate(`(() => {
      const plots = document.querySelectorAll("svg.plot");
      plots[0].querySelector(".marks").replaceChildren();
      for (const line of plots[1].querySelectorAll(".marks path")) line.setAttribute("transform", "translate(900 0)");
      const ticks = plots[2].querySelectorAll(".tx");
      ticks[1].setAttribute("x", ticks[0].getAttribute("x"));
      return (${inspectPlots})();
    })()`);
    assert.equal(found.filter((f) => f.includes("no marks")).length, 1, found.join("\n"));
    assert.ok(found.some((f) => f.includes("outside")), found.join("\n"));
    assert.ok(found.some((f) => f.includes("meet")), found.join("\n"));
    await close();
  });
}
