/**
 * Names and values, as an object or a map. An `object`, so that an interface of TypeScript is one too.
 */
export type Labels = Readonly<Record<string, unknown>> | ReadonlyMap<string, unknown> | object;
/** Profiling begins: scopes that were entered before go on in its samples. */
export function beginFollowing(): void;
/** The id of the context that is current here. */
export function current(): number;
/**
 * Runs `fn` under the context `id`, and what it awaits and starts.
 * @template {any[]} A
 * @template R
 * @param {number} id
 * @param {(...args: A) => R} fn
 * @param {A} args
 * @returns {R}
 */
export function run<A extends any[], R>(id: number, fn: (...args: A) => R, args: A): R;
/**
 * Makes `id` current from here to the end of what runs here, and in what it starts.
 * @param {number} id
 */
export function enter(id: number): void;
/**
 * The id of `labels` on top of the context `parent`; the parent itself when the labels cannot be had.
 * @param {number} parent
 * @param {Labels | null | undefined} labels
 */
export function child(parent: number, labels: Labels | null | undefined): number;
/**
 * The id of the labels of `parent` under a span, or under none when its ids are empty. Within one trace the local root stays
 * what it was; the first span of a trace in this process is its own, unless it stands for one elsewhere.
 * @param {number} parent
 * @param {string} traceId
 * @param {string} spanId
 * @param {boolean} isRemote
 */
export function linked(parent: number, traceId: string, spanId: string, isRemote: boolean): number;
/**
 * Calls `fn(...args)` with labels on its samples, and returns what it returns. The labels follow promises, timers and
 * callbacks that `fn` starts, nest, and end when `fn` ends, also by an exception. `trace_id` and `span_id` become the link
 * of the samples.
 * @template {any[]} A
 * @template R
 * @param {Labels} labels
 * @param {(...args: A) => R} fn
 * @param {A} args
 * @returns {R}
 */
export function tagWrapper<A extends any[], R>(labels: Labels, fn: (...args: A) => R, ...args: A): R;
/**
 * Replaces the labels from here on, in what runs here and in what it starts. Prefer `tagWrapper`, which ends by itself.
 * @param {Labels} labels
 */
export function setLabels(labels: Labels): void;
/**
 * The labels that are current here.
 * @returns {Record<string, string>}
 */
export function getLabels(): Record<string, string>;
/**
 * `fn`, bound to the labels and the span that are current here, wherever it is called later.
 * @template {(...args: any[]) => any} F
 * @param {F} fn
 * @returns {F}
 */
export function bind<F extends (...args: any[]) => any>(fn: F): F;
