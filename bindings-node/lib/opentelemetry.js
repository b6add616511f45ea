'use strict';
// Links the active OpenTelemetry span: wraps `with` of the registered context manager once. Its `bind` calls `with`. Observes the
// registration of a tracer provider. No module of OpenTelemetry is loaded. Not here: the registration of the API (`thread`), the span
// processor of a provider (`tracer_provider`).

/** The API's global registry; one per major version of the API. */
const REGISTRY = Symbol.for('opentelemetry.js.api.1');
const SPAN = Symbol.for('OpenTelemetry Context Key SPAN');

/** The originals of the replaced methods, also of those that an earlier load of this module replaced. */
const ORIGINALS = Symbol.for('spanprof.originals');
/** The last context id of each span. @type {WeakMap<object, number>} */
const idOfSpan = new WeakMap();

/**
 * Wraps the registry's context manager, and extends its tracer provider. Later registrations are observed by setters on the
 * registry's prototype, so that its properties stay plain properties, as fast to read as before.
 * @param {any} registry
 */
function wrapRegistry(registry) {
  if (registry === null || typeof registry !== 'object') return;
  /** @type {Record<string, (registered: any) => void>} */
  const observers = { context: wrap };
  const { native } = require('./native.js');
  if (native.setting('requests') === 'true') observers.trace = (provider) => require('./tracer_provider.js').registered(provider);
  const prototype = Object.create(Object.getPrototypeOf(registry));
  for (const [name, observer] of Object.entries(observers)) {
    if (registry[name]) observer(registry[name]);
    Object.defineProperty(prototype, name, {
      configurable: true,
      get: () => undefined,
      set(registered) {
        try {
          if (registered) observer(registered);
        } catch {
          // It is registered in any case; spans are not linked, or not reported.
        }
        Object.defineProperty(this, name, { value: registered, configurable: true, enumerable: true, writable: true });
      },
    });
  }
  Object.setPrototypeOf(registry, prototype);
}

/** @param {any} contexts */
function wrap(contexts) {
  if (typeof contexts.with !== 'function' || !Object.isExtensible(contexts)) return;
  // Not loaded by a worker thread without OpenTelemetry.
  const scope = require('./scope.js');
  const { native } = require('./native.js');
  const originals = replaced();
  const original = originals.get(contexts.with) ?? contexts.with;
  /**
   * @this {any}
   * @param {any} context
   * @param {any[]} rest
   */
  function linked(context, ...rest) {
    const before = scope.current();
    const id = linkedId(native, before, context);
    if (id === before) return original.call(this, context, ...rest);
    return scope.run(id, () => original.call(this, context, ...rest), []);
  }
  // Its name, length and other properties, and those of the method: not enumerable in a class.
  const properties = Object.getOwnPropertyDescriptors(original);
  Reflect.deleteProperty(properties, 'prototype');
  Object.defineProperties(linked, properties);
  originals.set(linked, original);
  Object.defineProperty(contexts, 'with', { ...methodOf(contexts), value: linked });
}

/** @returns {WeakMap<Function, Function>} */
function replaced() {
  const global = /** @type {any} */ (globalThis);
  if (global[ORIGINALS] === undefined) Object.defineProperty(globalThis, ORIGINALS, { value: new WeakMap() });
  return global[ORIGINALS];
}

/**
 * The property `with` of an object or of its prototypes.
 * @param {any} contexts
 */
function methodOf(contexts) {
  let holder = contexts;
  while (!Object.hasOwn(holder, 'with')) holder = Object.getPrototypeOf(holder);
  const { enumerable } = /** @type {PropertyDescriptor} */ (Object.getOwnPropertyDescriptor(holder, 'with'));
  return { enumerable, configurable: true, writable: true };
}

/**
 * The id of the current labels under the span of `context`.
 * @param {import('./noop.js').Native} native
 * @param {number} before
 * @param {any} context
 * @returns {number}
 */
function linkedId(native, before, context) {
  try {
    const span = context.getValue(SPAN);
    if (span === undefined || span === null) return before === 0 ? 0 : native.contextUnderSpan(before, '', '', false);
    if (idOfSpan.get(span) === before) return before;
    const { traceId, spanId, isRemote } = span.spanContext();
    if (/^0*$/.test(traceId)) return native.contextUnderSpan(before, '', '', false);
    const id = native.contextUnderSpan(before, traceId, spanId, isRemote === true);
    idOfSpan.set(span, id);
    return id;
  } catch {
    return before;
  }
}

/**
 * The active span; undefined without one.
 * @returns {any}
 */
function activeSpan() {
  try {
    return /** @type {any} */ (globalThis)[REGISTRY]?.context?.active().getValue(SPAN);
  } catch {
    return undefined;
  }
}

module.exports = { wrapRegistry, activeSpan };
