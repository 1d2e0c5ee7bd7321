/*
 * main() for fuzz targets where libFuzzer is not: runs every file of the directories named on the
 * command line once. A directory without a file is a failure, so that a lost corpus shows.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay_file(const char *directory, const char *name)
{
    static uint8_t input[1 << 20];
    char path[4096];
    uint8_t *exact;
    size_t size;
    FILE *file;

    (void)snprintf(path, sizeof(path), "%s/%s", directory, name);
    file = fopen(path, "rb");
    if (!file)
        return 0;
    size = fread(input, 1, sizeof(input), file);
    (void)fclose(file);

    /* A block of exactly this size lets a sanitizer see a read past the end. */
    exact = malloc(size ? size : 1);
    if (!exact)
        return 0;
    for (size_t i = 0; i < size; i++)
        exact[i] = input[i];
    (void)LLVMFuzzerTestOneInput(exact, size);
    free(exact);
    return 1;
}

static int replay_directory(const char *directory)
{
    DIR *stream = opendir(directory);
    int count = 0;

    if (!stream)
        return 0;
    for (struct dirent *entry = readdir(stream); entry; entry = readdir(stream)) {
        if (entry->d_name[0] != '.')
            count += replay_file(directory, entry->d_name);
    }
    (void)closedir(stream);
    return count;
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        int count = replay_directory(argv[i]);

        (void)printf("%s: %d inputs\n", argv[i], count);
        if (count == 0)
            return 1;
    }
    return 0;
}
