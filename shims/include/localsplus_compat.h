/* CPython's own names for what localsplus does, on the versions that lack them.
 *
 *  PyUnstable_InterpreterFrame_GetLocal, PyUnstable_Code_GetLocalPlusNames
 *                                 as in CPython 3.16, below it
 *  PyUnstable_InterpreterFrame_GetCode, _GetLasti, _GetLine
 *                                 as in CPython 3.12, on 3.11
 *
 * One call site then compiles on 3.11 to 3.16 and later. Where Python.h declares
 * a name, this header adds nothing, and the call is CPython's own. It is for code
 * that is compiled once per Python version; the code that localsplus itself was
 * built from needs no such thing.
 *
 * Differences from the interpreter's functions, all of them on bad input or an
 * interpreter that localsplus refuses: GetCode, GetLasti and GetLine, which
 * cannot fail in CPython, answer NULL or -1 with an exception set, and GetLocal
 * answers -1 with ValueError for a frame without Python code, where CPython reads
 * on. While a frame is between its entry and its suspension, 3.16 and localsplus
 * differ about two odd cases of captured variables (R4 and R5 in localsplus's
 * documentation): a slot whose cell was exchanged, and an argument that is itself
 * a cell. */
#ifndef LOCALSPLUS_COMPAT_H
#define LOCALSPLUS_COMPAT_H

#include "localsplus.h"

#ifdef Py_LIMITED_API
#  error "the PyUnstable functions are not in the limited API: use localsplus.h"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* 3.16.0a1 was released without them. */
#if PY_VERSION_HEX < 0x031000A2

/* 1 and a new strong reference in *result; 0 and NULL if the slot has no value;
 * -1 and NULL with an exception set. */
static inline int
PyUnstable_InterpreterFrame_GetLocal(struct _PyInterpreterFrame *frame, Py_ssize_t index, PyObject **result)
{
    return localsplus_get_local(frame, index, result);
}

/* A new reference to a tuple: the names of the slots, in the order of GetLocal. */
static inline PyObject *
PyUnstable_Code_GetLocalPlusNames(PyCodeObject *code)
{
    return Py_NewRef(code->co_localsplusnames);
}

#endif

#if PY_VERSION_HEX < 0x030C0000

/* A new reference to the code object. */
static inline PyObject *
PyUnstable_InterpreterFrame_GetCode(struct _PyInterpreterFrame *frame)
{
    return localsplus_code(frame);
}

/* The byte offset of the last executed instruction, negative before the first. */
static inline int
PyUnstable_InterpreterFrame_GetLasti(struct _PyInterpreterFrame *frame)
{
    return localsplus_lasti(frame);
}

/* The line that the frame is at; -1 if its instruction has none. */
static inline int
PyUnstable_InterpreterFrame_GetLine(struct _PyInterpreterFrame *frame)
{
    int lasti = localsplus_lasti(frame);
    PyObject *code = lasti == -1 ? NULL : localsplus_code(frame);
    if (code == NULL) {
        return -1;
    }
    int line = PyCode_Addr2Line((PyCodeObject *)code, lasti);
    Py_DECREF(code);
    return line;
}

#endif

#ifdef __cplusplus
}
#endif

#endif /* LOCALSPLUS_COMPAT_H */
