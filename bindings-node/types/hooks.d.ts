/**
 * Makes `id` the one that samples carry; returns the previous one.
 * @param {number} id
 */
export function exchange(id: number): number;
/** @param {import('node:async_hooks').AsyncLocalStorage<number>} storage */
export function install(storage: import("node:async_hooks").AsyncLocalStorage<number>): void;
