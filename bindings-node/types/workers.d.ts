/** Wraps the constructor, once. */
export function install(): void;
/** Runs the script of this worker under its creator's context. */
export function enterInherited(): void;
export const PRELOAD: string;
