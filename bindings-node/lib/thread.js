'use strict';
// What each JavaScript thread replaces while profiling: the class of worker threads, whose workers preload `worker.js`, and
// OpenTelemetry's registry, to observe its registration; and the channels that it observes. Each module costs a new worker CPU time: those that do more than observe are
// loaded when needed.

const diagnostics = require('node:diagnostics_channel');
const workerThreads = require('node:worker_threads');
const { native } = require('./native.js');

/** The global registry of OpenTelemetry's API; one per major version. */
const REGISTRY = Symbol.for('opentelemetry.js.api.1');
const WRAPPED = Symbol.for('spanprof.worker');

let isLinked = false;

/** Links the active span of OpenTelemetry, whether its API is loaded before or later. */
function linkOpenTelemetry() {
  if (isLinked) return;
  isLinked = true;
  try {
    const registry = /** @type {any} */ (globalThis)[REGISTRY];
    if (registry !== undefined) require('./opentelemetry.js').wrapRegistry(registry);
    else waitForRegistry();
  } catch {
    // The program froze its globals; samples are not linked.
  }
}

function waitForRegistry() {
  Object.defineProperty(globalThis, REGISTRY, {
    configurable: true,
    enumerable: false,
    get: () => undefined,
    set(registry) {
      Object.defineProperty(globalThis, REGISTRY, { value: registry, configurable: true, enumerable: true, writable: true });
      try {
        require('./opentelemetry.js').wrapRegistry(registry);
      } catch {
        // The registry cannot be wrapped; samples are not linked.
      }
    },
  });
}

/** Channels of Node.js, Fastify and undici. They are kept, because Node.js 18 collects a channel with its subscribers. @type {any[]} */
const channels = [];

/** Begins requests of HTTP servers, and calls that they await, without code of the program, unless `requests` is false. */
function followRequests() {
  if (channels.length > 0 || native.setting('requests') !== 'true') return;
  /** @type {typeof import('./servers.js') | undefined} */
  let servers;
  /** @type {typeof import('./calls.js') | undefined} */
  let calls;
  const loadedServers = () => (servers ??= require('./servers.js'));
  const loadedCalls = () => (calls ??= require('./calls.js'));
  /** @type {Record<string, (message: any) => void>} */
  const subscribers = {
    'http.server.request.start': ({ server }) => loadedServers().requestStarts(server),
    'fastify.initialization': (message) => loadedServers().fastifyStarts(message),
    'http.client.request.start': ({ request }) => loadedCalls().beginOfHttp(request),
    'undici:request:create': ({ request }) => loadedCalls().begin(request, request.origin),
    'undici:request:trailers': ({ request }) => loadedCalls().end(request),
    'undici:request:error': ({ request }) => loadedCalls().end(request),
  };
  for (const [name, subscriber] of Object.entries(subscribers)) {
    const channel = diagnostics.channel(name);
    channel.subscribe((message) => {
      try {
        subscriber(message);
      } catch {
        // The program's request continues; its end is not reported.
      }
    });
    channels.push(channel);
  }
}

/**
 * Replaces the class of worker threads, once: a proxy has its name, length, static members, prototype and text.
 * @param {boolean} [isFirst] whether this package is the first to be loaded: no ES module has imported the class
 */
function replaceWorker(isFirst) {
  const { Worker } = workerThreads;
  if (WRAPPED in Worker) return;
  const profiled = new Proxy(Worker, {
    construct: (target, args, newTarget) => require('./workers.js').construct(target, /** @type {any} */ (args), newTarget),
    has: (target, key) => key === WRAPPED || Reflect.has(target, key),
  });
  // Both properties keep their attributes.
  Object.defineProperty(Worker.prototype, 'constructor', { value: profiled });
  Object.defineProperty(workerThreads, 'Worker', { value: profiled });
  if (!isFirst) require('node:module').syncBuiltinESMExports();
}

module.exports = { linkOpenTelemetry, followRequests, replaceWorker };
