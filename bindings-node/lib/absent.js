'use strict';
// Stands in for the native module when it cannot be loaded: every door is there, does nothing and costs next to nothing.
// Its types are the contract of the native module.

/**
 * What the native module (`bindings-node/src`) gives. Ids of contexts are small whole numbers; 0 is the empty one.
 * @typedef {object} Native
 * @property {string} version
 * @property {(configJson: string) => boolean} start throws an error with `kind` and `hint`
 * @property {() => boolean} stop
 * @property {(milliseconds: number) => boolean | Promise<boolean>} flush
 * @property {(configJson: string) => boolean} update throws as `start` does
 * @property {() => Record<string, any>} stats
 * @property {(parent: number, pairs: string[]) => number} childContext labels on top of a context; `trace_id` and `span_id`
 *   among them become its link
 * @property {(parent: number, pairs: string[]) => number} relabelContext a context's link under these labels alone
 * @property {(parent: number, traceId: string, spanId: string, isRemote: boolean) => number} linkContext a context's labels
 *   under this span; empty ids for none. The local root is the parent's within one trace, else the span unless remote
 * @property {(id: number) => {labels: string[], traceId: string, spanId: string}} describeContext
 * @property {(id: number) => void} setCurrent
 * @property {(storage: object) => boolean} registerStorage whether the handler reads the storage by itself
 * @property {() => void} registerThread
 */

/** @type {Native} */
const absent = {
  version: '0',
  start: () => false,
  stop: () => true,
  flush: () => true,
  update: () => false,
  stats: () => ({}),
  childContext: () => 0,
  relabelContext: () => 0,
  linkContext: () => 0,
  describeContext: () => ({ labels: [], traceId: '', spanId: '' }),
  setCurrent: () => {},
  registerStorage: () => true,
  registerThread: () => {},
};

module.exports = absent;
