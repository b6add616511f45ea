/**
 * Names and values, as an object or a map. Declared as `object`, so that TypeScript interfaces are accepted.
 */
export type Labels = Readonly<Record<string, unknown>> | ReadonlyMap<string, unknown> | object;
/** Profiling started: registers the storage if a scope was entered before. */
export function profilingStarted(): void;
/** The current context id; 0 for none. */
export function current(): number;
/**
 * Runs `fn`, and the asynchronous work that it starts, under the context `id`.
 * @template {any[]} A
 * @template R
 * @param {number} id
 * @param {(...args: A) => R} fn
 * @param {A} args
 * @returns {R}
 */
export function run<A extends any[], R>(id: number, fn: (...args: A) => R, args: A): R;
/**
 * Makes `id` current for the rest of the synchronous execution, and the asynchronous work that it starts.
 * @param {number} id
 */
export function enter(id: number): void;
/**
 * The id of the context `parent` with `labels` added; the parent itself on an error.
 * @param {number} parent
 * @param {Labels | null | undefined} labels
 */
export function child(parent: number, labels: Labels | null | undefined): number;
/**
 * Calls `fn(...args)` with labels on its samples, and returns its result. The labels follow promises, timers and callbacks that
 * `fn` starts, can be nested, and end when `fn` returns or throws. `trace_id` and `span_id` become the link of the samples.
 * @template {any[]} A
 * @template R
 * @param {Labels} labels
 * @param {(...args: A) => R} fn
 * @param {A} args
 * @returns {R}
 */
export function tagWrapper<A extends any[], R>(labels: Labels, fn: (...args: A) => R, ...args: A): R;
/**
 * Prepared labels: an immutable label set, converted once, for `tagWrapper` and every other function that takes labels. The limits
 * of labels apply when it is made, before or after `start`. Never throws: unreadable labels are left out.
 * @param {Labels} labels
 * @returns {Readonly<Record<string, string>>}
 */
export function prepareLabels(labels: Labels): Readonly<Record<string, string>>;
/**
 * Replaces the labels for the rest of the synchronous execution, and the asynchronous work that it starts. Prefer `tagWrapper`.
 * @param {Labels} labels
 */
export function setLabels(labels: Labels): void;
/**
 * The current labels.
 * @returns {Record<string, string>}
 */
export function getLabels(): Record<string, string>;
/**
 * `fn`, bound to the current labels and span: every later call, and the asynchronous work that it starts, runs under them instead of
 * its caller's. Outside all scopes it is bound to no labels. A generator function is bound for the call that creates the generator
 * only, as with OpenTelemetry's `context.bind`: the body runs under the labels of the code that resumes it.
 * @template {(...args: any[]) => any} F
 * @param {F} fn
 * @returns {F}
 */
export function bind<F extends (...args: any[]) => any>(fn: F): F;
