/** Throws when the file ends before its sections and segments (`Elf64_Ehdr` and `Elf64_Phdr` in elf(5)). @param {string} file */
export function checkComplete(file: string): void;
