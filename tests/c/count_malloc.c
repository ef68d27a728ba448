/* Preloaded, counts what the whole process asks of malloc() and its relatives. */
#include <stddef.h>

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *memory, size_t size);

#define EXPORTED __attribute__((visibility("default")))

EXPORTED long malloc_calls;

EXPORTED void *
malloc(size_t size)
{
    malloc_calls++;
    return __libc_malloc(size);
}

EXPORTED void *
calloc(size_t count, size_t size)
{
    malloc_calls++;
    return __libc_calloc(count, size);
}

EXPORTED void *
realloc(void *memory, size_t size)
{
    malloc_calls++;
    return __libc_realloc(memory, size);
}
