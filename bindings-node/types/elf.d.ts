/** Throws where the file ends before its sections and segments do (`Elf64_Ehdr` and `Elf64_Phdr` in elf(5)). @param {string} file */
export function checkWhole(file: string): void;
