/** Wraps the constructor, once. */
export function install(): void;
/** The script of this worker, and what it starts, goes on under the context that made it. */
export function beginInherited(): void;
export const PRELOAD: string;
