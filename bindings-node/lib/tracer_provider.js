'use strict';
// Registers the span processor with the tracer provider that a program sets, before or after `start`. No module of OpenTelemetry is
// loaded.
//
// # Changes in OpenTelemetry JS
// | module | relied on | versions |
// |---|---|---|
// | `api/src/trace/ProxyTracerProvider.ts` | the registered provider; `setDelegate` follows its registration, in 1.0 it precedes it | API 1.0–1.9 |
// | `sdk-trace-base/src/BasicTracerProvider.ts` | `getActiveSpanProcessor()` is called for each span; `addSpanProcessor` replaces what it returns | SDK 1.0–1.30 |
// | the same, since 2.11 `sdk-trace/src/TracerProvider.ts` | `_activeSpanProcessor._spanProcessors`, a list that the SDK never changes | SDK 2.0–2.12 |

const { SpanProcessor, adoptResource } = require('./span_processor.js');

/** Providers with our processor, or without a way to add one. @type {WeakSet<object>} */
const seen = new WeakSet();

/**
 * The API registers `provider`, which passes calls on to the program's.
 * @param {any} provider
 */
function registered(provider) {
  if (typeof provider.setDelegate !== 'function') {
    extend(provider);
    return;
  }
  // Not `getDelegate`, which returns a provider without spans before one is set.
  if (provider._delegate) extend(provider._delegate);
  if (Object.hasOwn(provider, 'setDelegate')) return;
  const { setDelegate } = provider;
  /**
   * @this {any}
   * @param {any} delegate
   */
  function setObservedDelegate(delegate) {
    setDelegate.call(this, delegate);
    try {
      extend(delegate);
    } catch {
      // The provider is set in any case.
    }
  }
  Object.defineProperty(provider, 'setDelegate', { value: setObservedDelegate, configurable: true, writable: true });
}

/** @param {any} provider of the program */
function extend(provider) {
  if (provider === null || typeof provider !== 'object' || seen.has(provider)) return;
  seen.add(provider);
  const processor = new SpanProcessor();
  const name = provider.constructor?.name;
  const active = provider._activeSpanProcessor;
  if (Array.isArray(active?._spanProcessors)) {
    active._spanProcessors = withProcessor(active._spanProcessors, processor);
  } else if (typeof provider.getActiveSpanProcessor === 'function') {
    extendCalls(provider, processor);
  } else if (name !== 'NoopTracerProvider') {
    require('./host_log.js').log('warning', `spanprof: the tracer provider ${name} cannot be extended: requests have no end, and are not ` +
      'listed. Add `new spanprof.SpanProcessor()` to its span processors.');
    return;
  }
  adoptResource(provider._resource ?? provider.resource ?? provider._config?.resource);
}

/**
 * The list with our processor, unless the program has added one itself. A copy, because the list may be the program's.
 * @param {any[]} processors
 * @param {SpanProcessor} processor
 */
function withProcessor(processors, processor) {
  return processors.some((other) => other instanceof SpanProcessor) ? processors : [...processors, processor];
}

/**
 * Version 1 of the SDK, in which a later `addSpanProcessor` replaces the active processor. Not by this method, which shuts down the
 * processor that the environment has configured.
 * @param {any} provider
 * @param {SpanProcessor} processor
 */
function extendCalls(provider, processor) {
  const { getActiveSpanProcessor } = provider;
  /** @type {any} */
  let active;
  /** @type {any} */
  let extended;
  /** @this {any} */
  function getExtendedSpanProcessor() {
    const current = getActiveSpanProcessor.call(this);
    if (current !== active) {
      active = current;
      extended = forwarding(withProcessor(current._spanProcessors ?? [current], processor), current);
    }
    return extended;
  }
  Object.defineProperty(provider, 'getActiveSpanProcessor', { value: getExtendedSpanProcessor, configurable: true, writable: true });
}

/**
 * A processor that passes spans to all of a list, and everything else to the SDK's own.
 * @param {any[]} processors
 * @param {any} active
 */
function forwarding(processors, active) {
  return {
    /**
     * @param {any} span
     * @param {any} context
     */
    onStart(span, context) {
      for (const processor of processors) processor.onStart(span, context);
    },
    /** @param {any} span */
    onEnd(span) {
      for (const processor of processors) processor.onEnd(span);
    },
    forceFlush: () => active.forceFlush(),
    shutdown: () => active.shutdown(),
  };
}

module.exports = { registered };
