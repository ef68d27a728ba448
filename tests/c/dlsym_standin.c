/* An interpreter that is not what it should be: preloaded, this answers dlsym() as
 * LOCALSPLUS_FAULT says, which may change while the process runs. Faults, separated by ';':
 *
 *     missing NAME             there is no such symbol
 *     null NAME                there is one, at address 0
 *     alias NAME OTHER         it is OTHER's address
 *     value NAME HEX           it is an unsigned long of that value
 *     word NAME OFFSET HEX     it is a copy, with the 8 bytes at OFFSET xor HEX
 *     lie NAME BEHAVIOUR       it is one of the functions below
 *
 * LOCALSPLUS_ASKED names a file to which every name asked for is appended.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef void *(*dlsym_function)(void *, const char *);

static dlsym_function
real_dlsym(void)
{
    static dlsym_function found;
    static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17"};
    for (size_t i = 0; found == NULL && i < sizeof(versions) / sizeof(versions[0]); i++) {
        *(void **)&found = dlvsym(RTLD_NEXT, "dlsym", versions[i]);
    }
    if (found == NULL) {
        abort();
    }
    return found;
}

static void *
interpreter(const char *name)
{
    void *address = real_dlsym()(RTLD_DEFAULT, name);
    if (address == NULL) {
        abort();
    }
    return address;
}

/* ---- lies ------------------------------------------------------------------- */

/* Registers are left alone, so that these do for any signature. */
static void *
lie_null(void)
{
    return NULL;
}

static void *
lie_same(void *argument)
{
    return argument;
}

static void *
lie_number(void)
{
    return (void *)(uintptr_t)1;
}

typedef void *(*cell_get)(void *);
typedef void (*count)(void *);

static void *
lie_borrowed(void *cell)
{
    void *value = ((cell_get)interpreter("PyCell_Get"))(cell);
    ((count)interpreter("Py_DecRef"))(value);
    return value;
}

static void *
lie_leaked(void *cell)
{
    void *value = ((cell_get)interpreter("PyCell_Get"))(cell);
    ((count)interpreter("Py_IncRef"))(value);
    return value;
}

static const struct {
    const char *behaviour;
    void *address;
} lies[] = {
    {"null", (void *)lie_null},         {"same", (void *)lie_same},     {"number", (void *)lie_number},
    {"borrowed", (void *)lie_borrowed}, {"leaked", (void *)lie_leaked},
};

/* ---- faults ------------------------------------------------------------------ */

static void *
faulty(void *handle, const char *name, char *fault, int *is_faulty)
{
    char kind[16], subject[128], other[128] = "", value[32] = "";
    int words = sscanf(fault, " %15s %127s %127s %31s", kind, subject, other, value);
    if (words < 2 || strcmp(subject, name) != 0) {
        return NULL;
    }
    *is_faulty = 1;
    if (strcmp(kind, "missing") == 0) {
        /* So that dlerror() tells. */
        return real_dlsym()(handle, "localsplus_no_such_symbol");
    }
    if (strcmp(kind, "null") == 0) {
        return NULL;
    }
    if (strcmp(kind, "alias") == 0) {
        return interpreter(other);
    }
    if (strcmp(kind, "value") == 0) {
        static unsigned long number;
        number = strtoul(other, NULL, 16);
        return &number;
    }
    if (strcmp(kind, "word") == 0) {
        static uint64_t copy[128];
        memcpy(copy, interpreter(name), sizeof(copy));
        copy[strtoul(other, NULL, 10) / 8] ^= strtoul(value, NULL, 16);
        return copy;
    }
    for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
        if (strcmp(kind, "lie") == 0 && strcmp(lies[i].behaviour, other) == 0) {
            return lies[i].address;
        }
    }
    fprintf(stderr, "dlsym_standin: what is %s?\n", fault);
    abort();
}

__attribute__((visibility("default"))) void *
dlsym(void *handle, const char *name)
{
    const char *asked = getenv("LOCALSPLUS_ASKED"), *faults = getenv("LOCALSPLUS_FAULT");
    if (asked != NULL && *asked != '\0') {
        int file = open(asked, O_WRONLY | O_CREAT | O_APPEND, 0600);
        if (file < 0 || dprintf(file, "%s\n", name) < 0) {
            abort();
        }
        close(file);
    }
    if (faults != NULL && *faults != '\0') {
        char copy[1024], *rest = NULL;
        snprintf(copy, sizeof(copy), "%s", faults);
        for (char *fault = strtok_r(copy, ";", &rest); fault != NULL; fault = strtok_r(NULL, ";", &rest)) {
            int is_faulty = 0;
            void *address = faulty(handle, name, fault, &is_faulty);
            if (is_faulty) {
                return address;
            }
        }
    }
    return real_dlsym()(handle, name);
}
