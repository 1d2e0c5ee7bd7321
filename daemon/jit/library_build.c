#include "library_build.h"

#include <elf.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#define BUILD_ID_MAX 20 /* bytes used of a build ID: SHA-1, what linkers make */

struct search {
    uintptr_t address;
    char *text;
    size_t size;
};

static bool contains(const struct dl_phdr_info *object, uintptr_t address)
{
    for (size_t i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &object->dlpi_phdr[i];
        uintptr_t start = object->dlpi_addr + part->p_vaddr;

        if (part->p_type == PT_LOAD && address >= start && address - start < part->p_memsz)
            return true;
    }
    return false;
}

static void write_hex(struct search *search, const char *kind, const uint8_t *bytes, size_t count)
{
    int n = snprintf(search->text, search->size, "%s-", kind);

    for (size_t i = 0; i < count && (size_t)n + 3 <= search->size; i++)
        n += snprintf(search->text + n, search->size - (size_t)n, "%02x", bytes[i]);
}

static size_t padded(size_t size)
{
    return (size + 3) & ~(size_t)3;
}

static bool write_build_id(struct search *search, const uint8_t *notes, size_t size)
{
    while (size >= sizeof(ElfW(Nhdr))) {
        const ElfW(Nhdr) *note = (const void *)notes;
        size_t name = sizeof(*note), value = name + padded(note->n_namesz);
        size_t next = value + padded(note->n_descsz);

        if (next > size)
            return false;
        if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == sizeof(ELF_NOTE_GNU) &&
            memcmp(notes + name, ELF_NOTE_GNU, sizeof(ELF_NOTE_GNU)) == 0) {
            write_hex(search, "id", notes + value, MIN(note->n_descsz, BUILD_ID_MAX));
            return true;
        }
        notes += next;
        size -= next;
    }
    return false;
}

/* Reads the whole code, 100 MB for NVRTC: some 30 ms, in a child that is about to compile. */
static void write_code_hash(struct search *search, const struct dl_phdr_info *object)
{
    XXH64_hash_t hash = 0;
    XXH64_canonical_t digest;

    for (size_t i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &object->dlpi_phdr[i];

        if (part->p_type == PT_LOAD && (part->p_flags & PF_X))
            hash = XXH3_64bits_withSeed((const void *)(object->dlpi_addr + part->p_vaddr),
                                        part->p_filesz, hash);
    }
    XXH64_canonicalFromHash(&digest, hash);
    write_hex(search, "code", digest.digest, sizeof(digest.digest));
}

static int visit(struct dl_phdr_info *object, size_t size, void *context)
{
    struct search *search = context;

    (void)size;
    if (!contains(object, search->address))
        return 0;
    for (size_t i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &object->dlpi_phdr[i];

        if (part->p_type == PT_NOTE &&
            write_build_id(search, (const void *)(object->dlpi_addr + part->p_vaddr),
                           part->p_memsz))
            return 1;
    }
    write_code_hash(search, object);
    return 1;
}

void library_build(const void *symbol, char *ret_text, size_t size)
{
    struct search search = {.address = (uintptr_t)symbol, .text = ret_text, .size = size};

    (void)snprintf(ret_text, size, "unknown");
    (void)dl_iterate_phdr(visit, &search);
}
