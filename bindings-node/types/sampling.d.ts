declare namespace _exports {
    export { StackWalk };
}
declare namespace _exports {
    export { begin };
    export let handOver: typeof inspector.handOver;
    export let end: typeof inspector.end;
}
export = _exports;
type StackWalk = "auto" | "own" | "v8" | "inspector";
/**
 * @param {string} configJson
 * @param {string} programName
 * @param {StackWalk} stackWalk `auto`, or the best of the means to be tried
 * @returns {boolean} whether samples are being taken
 */
declare function begin(configJson: string, programName: string, stackWalk: StackWalk): boolean;
import inspector = require("./inspector.js");
