/** Replaces the class, once: a proxy has its name, length, static members, prototype and text. */
export function install(): void;
/** Runs the script of this worker under its creator's context. */
export function enterInherited(): void;
export const PRELOAD: string;
