/* What the four files of the test extension _consumer share. Each includes
 * localsplus.h twice and from two places. */
#ifndef CONSUMER_H
#define CONSUMER_H

#include "localsplus.h"
#include "localsplus.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    const char *language;
    int header_version;
    int (*library_version)(void);
    PyObject *(*first_local)(struct _PyInterpreterFrame *frame); /* new reference, or NULL with an exception */
} consumer;

extern const consumer consumer_c;
extern const consumer consumer_cpp;
extern const consumer consumer_cpp_too;

#ifdef __cplusplus
}
#endif

#endif /* CONSUMER_H */
