/* What localsplus is measured against: ways to take a frame's locals that are
 * written against CPython's internal headers, one version at a time. */
#ifndef LOCALSPLUS_BENCH_PEERS_H
#define LOCALSPLUS_BENCH_PEERS_H

#include <Python.h>

struct _PyInterpreterFrame;

#ifdef __cplusplus
extern "C" {
#endif

/* (a) A plain C reader with localsplus's rules and checks, called out of line. */
int plain_get_local(struct _PyInterpreterFrame *frame, Py_ssize_t index, PyObject **result);
Py_ssize_t plain_get_locals(struct _PyInterpreterFrame *frame, PyObject **result, Py_ssize_t capacity);

/* (b) The floor: no rule and no check, the slots are known. Only for frames that
 * have not started. */
Py_ssize_t floor_get_locals(struct _PyInterpreterFrame *frame, PyObject **result, Py_ssize_t capacity);

/* (d) A vector of borrowed references by slot, as a guard evaluator makes it before
 * a frame starts: made and destroyed, without and with a strong reference to each
 * value meanwhile. */
void mapping_borrowed(struct _PyInterpreterFrame *frame);
void mapping_strong(struct _PyInterpreterFrame *frame);
__attribute__((visibility("hidden"))) PyObject *mapping_borrow(const void *reference);

struct _PyInterpreterFrame *frame_of_frame_object(PyFrameObject *frame_object);
PyCodeObject *code_of(struct _PyInterpreterFrame *frame);

#ifdef __cplusplus
}
#endif

#endif
