export type StackWalk = "auto" | "own" | "v8";
/**
 * @param {string} configJson
 * @param {string} programName
 * @param {StackWalk} stackWalk `auto`, or the first method to try
 * @returns {boolean} whether samples are being taken; throws as the native `start` does
 */
export function start(configJson: string, programName: string, stackWalk: StackWalk): boolean;
