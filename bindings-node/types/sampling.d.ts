declare namespace _exports {
    export { StackWalk };
}
declare namespace _exports {
    export { start };
    export let submit: typeof inspector.submit;
    export let stop: typeof inspector.stop;
}
export = _exports;
type StackWalk = "auto" | "own" | "v8" | "inspector";
/**
 * @param {string} configJson
 * @param {string} programName
 * @param {StackWalk} stackWalk `auto`, or the first method to try
 * @returns {boolean} whether samples are being taken
 */
declare function start(configJson: string, programName: string, stackWalk: StackWalk): boolean;
import inspector = require("./inspector.js");
