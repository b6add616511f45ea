'use strict';
// Stands in for the native module when it cannot be loaded: every door is there, does nothing and costs next to nothing.
// Its types are the contract of the native module.

/**
 * What the native module (`bindings-node/src`) gives. Ids of contexts are small whole numbers; 0 is the empty one.
 * @typedef {object} Native
 * @property {() => string} version
 * @property {(configJson: string, programName: string, submitted: boolean) => boolean} start throws an error whose message is
 *   JSON: `kind`, `message`, `hint`
 * @property {(configJson: string) => boolean} isWanted whether a start would sample; throws as `start` does
 * @property {(configJson: string) => string[]} optionValues values of `eventLoopBlock`, `workerThreads` and `stackWalk`; throws as `start` does
 * @property {(profileJson: string) => number} submitProfile
 * @property {() => void} expectSelfTest
 * @property {(ownIsAllowed: boolean) => string} judgeWalks
 * @property {() => Promise<boolean>} stop
 * @property {() => boolean} stopSync
 * @property {(milliseconds?: number) => Promise<boolean>} flush
 * @property {(configJson: string) => boolean} update throws as `start` does
 * @property {() => Record<string, any>} stats
 * @property {() => boolean} isRunning
 * @property {(key: string) => string | null} setting
 * @property {(labelSet: number, traceId?: string, spanId?: string, localRootSpanId?: string) => number} openContext
 * @property {(parent: number, pairs: string[]) => number} childContext labels on top of a context; `trace_id` and `span_id`
 *   among them become its link
 * @property {(id: number) => DescribedContext} describeContext
 * @property {(id: number) => void} setCurrent
 * @property {() => Float64Array | null} currentWord
 * @property {() => number} currentInHandler the id that a sample would carry here, for tests
 * @property {(storage: object, probe: number) => boolean} registerStorage whether the handler finds `probe` in the storage
 * @property {() => boolean} registerThread
 * @property {() => void} suspendCurrentThread
 * @property {() => void} resumeCurrentThread
 * @property {(milliseconds: number) => void} reportTurnsLongerThan of every event loop; 0 for none
 * @property {() => string[]} takeLogLines alternating `info` or `warning`, and a line
 */

/**
 * @typedef {object} DescribedContext
 * @property {number} labelSet
 * @property {string[]} labels alternating keys and values
 * @property {string} traceId
 * @property {string} spanId
 * @property {string} localRootSpanId
 */

/** @type {Native} */
const absent = {
  version: () => '0',
  start: () => false,
  isWanted: () => false,
  optionValues: () => ['0', 'false', 'auto'],
  submitProfile: () => 0,
  expectSelfTest: () => {},
  judgeWalks: () => 'none',
  stop: async () => true,
  stopSync: () => true,
  flush: async () => true,
  update: () => false,
  stats: () => ({}),
  isRunning: () => false,
  setting: () => null,
  openContext: () => 0,
  childContext: () => 0,
  describeContext: () => ({ labelSet: 0, labels: [], traceId: '', spanId: '', localRootSpanId: '' }),
  setCurrent: () => {},
  currentWord: () => null,
  currentInHandler: () => 0,
  registerStorage: () => true,
  registerThread: () => false,
  suspendCurrentThread: () => {},
  resumeCurrentThread: () => {},
  reportTurnsLongerThan: () => {},
  takeLogLines: () => [],
};

module.exports = absent;
