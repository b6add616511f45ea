/**
 * Whether a process can listen for the signal of this name.
 * @param {unknown} name
 */
export function canListen(name: unknown): boolean;
/**
 * @param {readonly string[]} names
 * @param {() => Promise<unknown>} stop
 */
export function install(names: readonly string[], stop: () => Promise<unknown>): void;
/**
 * Listens to `removeListener` of `process`, after the listener of Node.js, which restores the default action.
 * @param {string | symbol} name
 */
export function listenerRemoved(name: string | symbol): void;
/** Restores the default actions. */
export function uninstallAll(): void;
