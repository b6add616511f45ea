/** @param {typeof lifecycle} functions */
export function setLifecycle(functions: typeof lifecycle): void;
/**
 * Makes sure that a profiler runs. The settings apply to a temporary one only.
 * @param {string} use
 * @param {import('./lifecycle.js').Options} settings
 */
export function acquire(use: string, settings: import("./lifecycle.js").Options): void;
/**
 * Ends a use.
 * @param {string} use
 * @param {import('./lifecycle.js').Options} settings that undo those of `acquire`
 * @returns {boolean} whether the temporary profiler must stop
 */
export function release(use: string, settings: import("./lifecycle.js").Options): boolean;
/** Stops the temporary profiler. */
export function stop(): Promise<void>;
/** As {@link stop}, on this thread. */
export function stopSync(): void;
/** Stops the temporary profiler, if there is one, so that the program's can start. */
export function replace(): boolean;
export function resume(): void;
/** Continue what was begun with the temporary profiler, after the program's has replaced it. @type {Set<() => void>} */
export const resumptions: Set<() => void>;
/**
 * Starts and stops the temporary profiler. Passed in, since `lifecycle.js` requires this module.
 * @type {Pick<typeof import('./lifecycle.js'), 'startQuietly' | 'update' | 'stop' | 'stopSync'>}
 */
declare let lifecycle: Pick<typeof import("./lifecycle.js"), "startQuietly" | "update" | "stop" | "stopSync">;
export {};
