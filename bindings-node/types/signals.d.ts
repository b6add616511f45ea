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
/** Restores the default actions. */
export function uninstallAll(): void;
