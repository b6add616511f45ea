// Profiles of three services in twelve windows of ten seconds that end now. Weights are deterministic; tests compute what they
// expect from the same samples with `weight`.

import { exportRequest } from './otlp.mjs';

export const WINDOWS = 12;
export const WINDOW_MS = 10_000;
const SAMPLE_NS = 10_000_000;
const MIB = 1 << 20;

const PACKAGES = ['cart', 'catalog', 'payment', 'shipping', 'search', 'account', 'inventory'];
const CLASSES = ['Price', 'Tax', 'Stock', 'Order', 'Item', 'Voucher', 'Address', 'Rate', 'Index', 'Session'];
const METHODS = ['load', 'parse', 'validate', 'apply', 'merge', 'encode', 'lookup', 'store', 'resolve', 'format'];
const FUNCTIONS = PACKAGES.length * CLASSES.length * METHODS.length;

/** Callers of all functions of `shop`, without self time. */
export const ROOTS = ['java.lang.Thread.run', 'com.acme.shop.http.Worker.run', 'com.acme.shop.http.Router.dispatch'];
/** Has four times the CPU time in the later half of the windows. */
export const GROWN = 'com.acme.shop.payment.Price.load';
/** Calls the functions of its package in all windows, and has self time in the later half only. */
export const FORMER_CALLER = 'com.acme.shop.cart.Handler.handle';
/** One of the functions with the least self time. */
export const RARE = leaf(FUNCTIONS - 3).name;

/** Commit of `api`. */
export const COMMIT = '1f2e3d4c';

/** Requests of `api` in each window. */
const REQUESTS = [
  { route: '/cart', method: 'GET', functions: ['render_cart', 'price'], samples: [40, 25] },
  { route: '/pay', method: 'POST', functions: ['charge', 'sign'], samples: [30, 10] },
  { route: '/search', method: 'GET', functions: ['query', 'rank'], samples: [15, 5] },
];

const SERVICES = {
  shop: {
    name: 'shop',
    pid: 4711,
    frames: { frameType: 'jvm', fileOf: (name) => `${name.split('.').at(-2)}.java` },
    samples: shopSamples,
  },
  api: {
    name: 'api',
    pid: 4712,
    commit: COMMIT,
    frames: { frameType: 'cpython', fileOf: () => '/srv/api/app.py' },
    samples: apiSamples,
  },
  '': {
    name: '',
    pid: 4713,
    frames: { frameType: 'native', fileOf: () => '/srv/batch/main.c' },
    samples: namelessSamples,
  },
};

/** The function with this rank by self time, and its package. */
function leaf(rank) {
  const [inPackage, inClass] = [rank % PACKAGES.length, Math.floor(rank / PACKAGES.length)];
  const [method, className] = [METHODS[Math.floor(inClass / CLASSES.length)], CLASSES[inClass % CLASSES.length]];
  return { name: `com.acme.shop.${PACKAGES[inPackage]}.${className}.${method}`, package: PACKAGES[inPackage] };
}

/** Frequent samples vary by chance between windows. */
function varied(count, window, rank) {
  return count < 20 ? count : count + ((window * 7 + rank * 3) % 5) - 2;
}

function shopSamples(window) {
  const samples = [];
  const isLater = window >= WINDOWS / 2;
  for (let rank = 0; rank < FUNCTIONS; rank++) {
    const { name, package: inPackage } = leaf(rank);
    const functions = [...ROOTS, `com.acme.shop.${inPackage}.Handler.handle`, name];
    const count = Math.max(1, Math.round(220 / (rank + 1))) * (isLater && name === GROWN ? 4 : 1);
    samples.push({ type: 'cpu', functions, weight: varied(count, window, rank) * SAMPLE_NS });
    if (rank >= 40) continue;
    samples.push({ type: 'wall', functions, weight: 2 * varied(count, window, rank) * SAMPLE_NS });
    samples.push({ type: 'alloc_space', functions, weight: (40 - rank) * MIB });
    samples.push({ type: 'inuse_space', functions, weight: (40 - rank + window) * MIB });
  }
  const waiting = [ROOTS[0], 'sun.nio.ch.SelectorImpl.select', 'sun.nio.ch.EPoll.wait'];
  samples.push({ type: 'wall', functions: waiting, weight: 1500 * SAMPLE_NS });
  if (isLater) samples.push({ type: 'cpu', functions: [...ROOTS, FORMER_CALLER], weight: varied(151, window, 0) * SAMPLE_NS });
  return samples;
}

/** The span of a request of `api`, and the span of its callee. */
export function link(window, request, isCallee) {
  const number = (window * REQUESTS.length + request + 1).toString(16);
  return { traceId: `ab${number.padStart(30, '0')}`, spanId: `${isCallee ? 'cd' : 'ce'}${number.padStart(14, '0')}` };
}

function apiSamples(window) {
  const samples = ['cpu', 'wall'].flatMap((type) => REQUESTS.flatMap(({ route, method, functions, samples: counts }, request) =>
    counts.map((count, depth) => ({
      type,
      functions: ['main', 'serve', ...functions.slice(0, depth + 1)],
      weight: varied(type === 'wall' ? 3 * count : count, window, request) * SAMPLE_NS,
      labels: { 'http.route': route, 'http.request.method': method },
      link: link(window, request, depth > 0),
    }))));
  samples.push({ type: 'cpu', functions: ['main', 'serve', 'select'], weight: 12 * SAMPLE_NS });
  return samples;
}

function namelessSamples(window) {
  return [{ type: 'cpu', functions: ['main', 'walk', 'walk', 'walk', 'work'], weight: (30 + window) * SAMPLE_NS }];
}

export class Fixture {
  /** All samples, with `service`, `window` and the properties that `exportRequest` describes. */
  samples = [];

  constructor(nowMs) {
    this.endMs = Math.floor(nowMs / WINDOW_MS) * WINDOW_MS;
    for (let window = 0; window < WINDOWS; window++) {
      for (const [service, { samples }] of Object.entries(SERVICES)) {
        this.samples.push(...samples(window).map((sample) => ({ ...sample, service, window })));
      }
    }
  }

  /** Start and end of a window; of the window after the last one, the start is the end of all. */
  window(nth) {
    const fromMs = this.endMs - (WINDOWS - nth) * WINDOW_MS;
    return { fromMs, toMs: fromMs + WINDOW_MS };
  }

  /** Query parameters of the windows from `first` to `last`, with both. */
  range(first, last) {
    return `from=${this.window(first).fromMs}&to=${this.window(last).toMs}`;
  }

  /** The weight of the samples that have all these properties, and that `accepts` accepts. */
  weight(properties, accepts = () => true) {
    const keys = Object.keys(properties);
    const selected = this.samples.filter((sample) => keys.every((key) => sample[key] === properties[key]) && accepts(sample));
    return selected.reduce((sum, sample) => sum + sample.weight, 0);
  }

  /** Sends every window of every service, oldest first. */
  async send(url) {
    for (let window = 0; window < WINDOWS; window++) {
      await Promise.all(Object.entries(SERVICES).map(async ([service, description]) => {
        const samples = this.samples.filter((sample) => sample.service === service && sample.window === window);
        const response = await fetch(`${url}/v1development/profiles`, {
          method: 'POST',
          headers: { 'content-type': 'application/json' },
          body: JSON.stringify(exportRequest(description, this.window(window), samples)),
        });
        if (!response.ok) throw new Error(`the server refused window ${window} of '${service}': ${await response.text()}`);
      }));
    }
  }
}
