export const Promise: PromiseConstructor;
/**
 * Emits a process warning after the running code, or at once during the exit. Not by `process.emitWarning`, whose warnings depend on
 * `process.nextTick`.
 * @param {string} text
 * @param {string} [code]
 */
export function emitWarning(text: string, code?: string): void;
/** Emits all warnings, in a handler of `exit`. */
export function emitPending(): void;
