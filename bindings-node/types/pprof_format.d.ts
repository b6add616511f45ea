/**
 * a number, or a 64-bit integer of the package `long`
 */
export type Integer = number | bigint | {
    low: number;
    high: number;
};
/**
 * indices of the string table
 */
export type ValueType = {
    type?: Integer;
    unit?: Integer;
};
export type Label = {
    key?: Integer;
    str?: Integer;
    num?: Integer;
    numUnit?: Integer;
};
/**
 * locations are leaf first
 */
export type Sample = {
    locationId: Integer[];
    value: Integer[];
    label?: Label[];
};
export type Line = {
    functionId?: Integer;
    line?: Integer;
    column?: Integer;
};
export type Location = {
    id: Integer;
    mappingId?: Integer;
    address?: Integer;
    line?: Line[];
    isFolded?: boolean;
};
export type FunctionEntry = {
    id: Integer;
    name?: Integer;
    systemName?: Integer;
    filename?: Integer;
    startLine?: Integer;
};
export type Mapping = {
    id: Integer;
    memoryStart?: Integer | undefined;
    memoryLimit?: Integer | undefined;
    fileOffset?: Integer | undefined;
    filename?: Integer | undefined;
    buildId?: Integer | undefined;
    hasFunctions?: boolean | undefined;
    hasFilenames?: boolean | undefined;
    hasLineNumbers?: boolean | undefined;
    hasInlineFrames?: boolean | undefined;
};
/**
 * A profile, as in google/pprof's `profile.proto`. Texts are indices of `stringTable`.
 */
export type Profile = {
    sampleType: ValueType[];
    sample: Sample[];
    mapping?: Mapping[] | undefined;
    location: Location[];
    function: FunctionEntry[];
    stringTable: string[];
    dropFrames?: Integer | undefined;
    keepFrames?: Integer | undefined;
    /**
     * nanoseconds since 1970; a number is exact to 256 ns
     */
    timeNanos?: number | undefined;
    durationNanos?: number | undefined;
    periodType?: ValueType | undefined;
    period?: number | undefined;
    comment?: Integer[] | undefined;
    defaultSampleType?: Integer | undefined;
};
/**
 * Reads a message that the native module has written.
 * @param {Buffer} data
 * @param {string} [message]
 * @returns {any} with every repeated field, and the single fields that are present
 */
export function decode(data: Buffer, message?: string): any;
/**
 * @param {Profile} profile
 * @returns {Buffer}
 */
export function encode(profile: Profile): Buffer;
