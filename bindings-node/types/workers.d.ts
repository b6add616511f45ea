/** Wraps the constructor, once. */
export function install(): void;
export const PRELOAD: string;
