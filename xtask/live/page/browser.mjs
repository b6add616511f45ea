// Headless Chromium, and the page of `spanprof serve` in one of its tabs.

import { accessSync, constants, mkdtempSync, mkdirSync, readFileSync, rmSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { setTimeout as sleep } from 'node:timers/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import packaged from '@sparticuz/chromium';
import puppeteer from 'puppeteer-core';

const NAMES = ['chromium', 'chromium-browser', 'google-chrome'];
const AXE = fileURLToPath(import.meta.resolve('axe-core/axe.min.js'));
/** Time for a page to load its data: debug builds answer in less than a second, on a busy machine later. */
const LOAD_MS = 30_000;
/** Time for the page to show the result of an action. */
const SHOW_MS = 10_000;

/** The directory of the screenshots: the environment variable SCREENSHOTS, or one below `target`. */
export const SCREENSHOTS = process.env.SCREENSHOTS || fileURLToPath(new URL('../../../target/page-screenshots', import.meta.url));

/** The first Chromium on PATH, else the one of the npm package, which needs no installation. */
function program() {
  const directories = (process.env.PATH ?? '').split(path.delimiter);
  const candidates = NAMES.flatMap((name) => directories.map((directory) => path.join(directory, name)));
  const found = candidates.find((candidate) => {
    try {
      accessSync(candidate, constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });
  return found ?? packaged.executablePath();
}

/** Repeats `check` until it passes, and returns its result; fails with its last error. */
export async function eventually(check, withinMs = SHOW_MS) {
  for (const until = Date.now() + withinMs; ; await sleep(40)) {
    try {
      return await check();
    } catch (error) {
      if (Date.now() > until) throw error;
    }
  }
}

export class Browser {
  #browser;
  #profile;

  static async start() {
    const started = new Browser();
    started.#profile = mkdtempSync(path.join(tmpdir(), 'spanprof-chromium-'));
    started.#browser = await puppeteer.launch({
      executablePath: await program(),
      userDataDir: started.#profile,
      // The page formats times in the time zone and the language of the browser.
      env: { ...process.env, TZ: 'UTC', LANGUAGE: 'en_US' },
      args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--lang=en-US', '--hide-scrollbars'],
    });
    return started;
  }

  /** A tab with its own storage. */
  async page({ width = 1400, height = 900, theme = 'light' } = {}) {
    const context = await this.#browser.createBrowserContext();
    const page = new Page(await context.newPage());
    await page.emulate({ width, height, theme });
    return page;
  }

  async stop() {
    await this.#browser.close();
    rmSync(this.#profile, { recursive: true, force: true, maxRetries: 5 });
  }
}

export class Page {
  /** Errors that no code of the page caught. */
  errors = [];
  #tab;

  constructor(tab) {
    this.#tab = tab;
    tab.on('pageerror', (error) => this.errors.push(error.message));
  }

  async emulate({ width, height, theme }) {
    if (width) await this.#tab.setViewport({ width, height });
    if (!theme) return;
    // During a transition of colors, axe-core would measure the contrast of a color between two themes.
    const features = [{ name: 'prefers-color-scheme', value: theme }, { name: 'prefers-reduced-motion', value: 'reduce' }];
    await this.#tab.emulateMediaFeatures(features);
  }

  /** Opens an address, and waits until the page has loaded its data. */
  async open(address) {
    await this.#tab.goto(address, { waitUntil: 'domcontentloaded' });
    return this.settled();
  }

  /** Waits until the page shows the data of the selected state; returns `html[data-ready]`. */
  async settled() {
    return eventually(async () => {
      const { ready, busy } = await this.evaluate(() => ({
        ready: document.documentElement.dataset.ready,
        busy: document.querySelectorAll('[aria-busy="true"]').length,
      }));
      if (!['true', 'empty', 'error'].includes(ready) || busy) throw new Error(`data-ready is ${ready}, ${busy} elements are busy`);
      return ready;
    }, LOAD_MS);
  }

  /** Runs a function in the page. CDP evaluates it, which the page's Content-Security-Policy does not apply to. */
  evaluate(body, ...values) {
    return this.#tab.evaluate(body, ...values);
  }

  query() {
    return new URL(this.#tab.url()).searchParams;
  }

  /** The state of an exported page. */
  hash() {
    return new URLSearchParams(new URL(this.#tab.url()).hash.slice(1));
  }

  async click(selector) {
    await this.#tab.locator(selector).setTimeout(SHOW_MS).click();
  }

  /** Clicks the first visible element of the selector whose text contains `text`. */
  async clickText(selector, text) {
    const found = await this.#tab.evaluateHandle((chosen, part) => [...document.querySelectorAll(chosen)]
      .find((element) => element.textContent.includes(part) && element.checkVisibility()), selector, text);
    const element = found.asElement();
    if (!element) throw new Error(`no visible ${selector} has the text ${text}`);
    await element.click();
  }

  async press(key) {
    await this.#tab.keyboard.press(key);
  }

  focus(selector) {
    return this.#tab.focus(selector);
  }

  /** Types into an empty input, and submits it with Enter if `enter` is set. */
  async type(selector, text, { enter = false } = {}) {
    await this.focus(selector);
    await this.#tab.keyboard.type(text);
    if (enter) await this.press('Enter');
  }

  /** Chooses the option of a select with this text. */
  async choose(selector, text) {
    await this.evaluate((chosen, wanted) => {
      const select = document.querySelector(chosen);
      const at = [...select.options].findIndex((option) => option.textContent === wanted);
      if (at < 0) throw new Error(`${chosen} has no option ${wanted}`);
      select.selectedIndex = at;
      select.dispatchEvent(new Event('change', { bubbles: true }));
    }, selector, text);
  }

  /** The visible text of the first element; '' if it is absent or hidden. */
  text(selector) {
    return this.evaluate((chosen) => document.querySelector(chosen)?.innerText ?? '', selector).then(normalized);
  }

  /** The text of each visible element. */
  async texts(selector) {
    const texts = await this.evaluate((chosen) => [...document.querySelectorAll(chosen)]
      .filter((element) => element.checkVisibility()).map((element) => element.innerText), selector);
    return texts.map(normalized);
  }

  count(selector) {
    return this.evaluate((chosen) => document.querySelectorAll(chosen).length, selector);
  }

  /** Presses the mouse at one point and releases it at another. */
  async drag(from, to) {
    const { mouse } = this.#tab;
    await mouse.move(from.x, from.y);
    await mouse.down();
    await mouse.move((from.x + to.x) / 2, to.y);
    await mouse.move(to.x, to.y);
    await mouse.up();
  }

  /**
   * Handles the requests of a path: `respond` returns a response, or `undefined` for the response of the server, possibly
   * later. Returns a function that ends it.
   */
  async intercept(requestPath, respond) {
    await this.#tab.setRequestInterception(true);
    const handle = async (request) => {
      const isHandled = new URL(request.url()).pathname === requestPath;
      const response = isHandled ? await respond(request) : undefined;
      // A request of an earlier state may be aborted meanwhile.
      await (response ? request.respond(response) : request.continue()).catch(() => {});
    };
    this.#tab.on('request', handle);
    return async () => {
      this.#tab.off('request', handle);
      await this.#tab.setRequestInterception(false);
    };
  }

  /** The violations that axe-core finds, each with its elements. */
  async axe() {
    await this.evaluate(readFileSync(AXE, 'utf8'));
    const violations = await this.evaluate(async () => {
      const result = await axe.run(document, { resultTypes: ['violations'] });
      return result.violations.map(({ id, help, nodes }) => ({ id, help, elements: nodes.map((node) => node.target.join(' ')) }));
    });
    return violations.map(({ id, help, elements }) =>
      `${id}: ${help}: ${elements.length} elements, such as ${elements.slice(0, 3).join(' and ')}`);
  }

  async screenshot(name) {
    mkdirSync(SCREENSHOTS, { recursive: true });
    const file = path.join(SCREENSHOTS, `${name.toLowerCase().replace(/[^a-z0-9]+/g, '-').replace(/^-|-$/g, '')}.png`);
    await this.#tab.screenshot({ path: file });
    return file;
  }

  async close() {
    await this.#tab.browserContext().close();
  }
}

/** Spaces of every kind are equal. */
function normalized(text) {
  return text.replace(/[\s\u00a0\u200e]+/g, ' ').trim();
}
