/**
 * Creates a worker that preloads `worker.js`. One with its own `execArgv` is not changed, and one that cannot load the preload would
 * not start.
 * @param {Function} Worker
 * @param {[string | URL, import('node:worker_threads').WorkerOptions?]} args
 * @param {Function} newTarget
 */
export function construct(Worker: Function, args: [string | URL, import("node:worker_threads").WorkerOptions?], newTarget: Function): any;
