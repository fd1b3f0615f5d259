// Drives a headless Chromium as a test says: one JSON line in, one JSON line out.
import { createInterface } from "node:readline";
import { createRequire } from "node:module";

const [playwright, program] = process.argv.slice(2);
const { chromium } = createRequire(import.meta.url)(playwright);
const browser = await chromium.launch({
  executablePath: program,
  args: ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--no-first-run", "--disable-background-networking"],
});
const pages = [];

const open = async ({ width = 1200, height = 900, dark = false, script = true, touch = false }) => {
  const context = await browser.newContext({
    viewport: { width, height },
    colorScheme: dark ? "dark" : "light",
    javaScriptEnabled: script,
    hasTouch: touch,
    timezoneId: "Europe/Zurich",
    locale: "en-GB",
  });
  return add(await context.newPage());
};

const add = (page) => {
  const troubles = [];
  page.on("console", (message) => { if (["error", "warning"].includes(message.type())) troubles.push(message.text()); });
  page.on("pageerror", (error) => troubles.push(String(error)));
  page.on("dialog", (dialog) => { troubles.push(`dialog: ${dialog.message()}`); dialog.dismiss(); });
  pages.push({ page, troubles });
  return pages.length - 1;
};

// Asked from outside: a page with a strict policy lets no expression be made of a text within.
const until = async (page, script, patience) => {
  const end = Date.now() + patience;
  let last = "it does not hold";
  while (Date.now() < end) {
    try { if (await page.evaluate(script)) return null; } catch (error) { last = String(error); }
    await new Promise((go) => setTimeout(go, 5));
  }
  throw new Error(`${script}: ${last}`);
};

const act = async (order) => {
  if (order.do === "open") return open(order);
  const { page, troubles } = pages[order.page];
  const within = { timeout: order.timeout ?? 10000 };
  switch (order.do) {
    case "beside": return add(await page.context().newPage());
    case "goto": { const answer = await page.goto(order.url, within); return answer ? answer.status() : 0; }
    case "click": return page.click(order.at, within);
    case "fill": return page.fill(order.at, order.text, within);
    case "select": return page.selectOption(order.at, order.text, within).then(() => null);
    case "hover": return page.hover(order.at, within);
    case "press": return page.keyboard.press(order.text);
    case "wait": return page.waitForSelector(order.at, { state: order.state ?? "visible", ...within }).then(() => null);
    case "until": return until(page, order.script, within.timeout);
    case "text": return page.innerText(order.at, within);
    case "eval": return page.evaluate(order.script);
    case "shot": return page.screenshot({ path: order.path, fullPage: true }).then(() => null);
    case "cookies": return page.context().cookies();
    case "close": return page.close();
    case "troubles": return troubles.splice(0);
    default: throw new Error(`what is ${order.do}?`);
  }
};

process.stdout.write('{"ready":true}\n');
for await (const line of createInterface({ input: process.stdin })) {
  let said;
  try { said = { is: (await act(JSON.parse(line))) ?? null }; } catch (error) { said = { fault: String(error) }; }
  process.stdout.write(JSON.stringify(said) + "\n");
}
await browser.close();
