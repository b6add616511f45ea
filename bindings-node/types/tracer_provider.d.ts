/**
 * The API registers `provider`, which passes calls on to the program's.
 * @param {any} provider
 */
export function registered(provider: any): void;
