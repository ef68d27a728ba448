/* A second, independent reader of interpreter frames, to compare localsplus
 * with.
 *
 * oracle.c is compiled once per interpreter, against that interpreter's
 * internal headers, and leaves every question of layout and tagging to them.
 * It decides what ran from the instructions themselves, as CPython's
 * _PyFrame_OpAlreadyRan did, where localsplus compares positions.
 *
 * All functions need an attached thread state. Objects and frames answered are
 * borrowed unless said otherwise. `frame` must be alive: there is no defence
 * against misuse here, this is test code.
 */
#ifndef LOCALSPLUS_ORACLE_H
#define LOCALSPLUS_ORACLE_H

#include <Python.h>
#include <stdint.h>

struct _PyInterpreterFrame;

/* The same values as the LOCALSPLUS_* flags and kinds. */
#define ORACLE_HIDDEN      1u
#define ORACLE_RAW_CELL    2u
#define ORACLE_KIND_ARG    0x01
#define ORACLE_KIND_HIDDEN 0x10
#define ORACLE_KIND_LOCAL  0x20
#define ORACLE_KIND_CELL   0x40
#define ORACLE_KIND_FREE   0x80

/* What oracle_stack_depth() answers while the interpreter keeps the stack
 * pointer to itself. */
#define ORACLE_STACK_UNKNOWN (-1)

/* Whether this is a frame of Python code: not a shim, executable a code object. */
int oracle_is_python_frame(struct _PyInterpreterFrame *frame);

/* The following four are for Python frames only. */
Py_ssize_t oracle_count(struct _PyInterpreterFrame *frame);
PyObject *oracle_names(struct _PyInterpreterFrame *frame);
int oracle_kind(struct _PyInterpreterFrame *frame, Py_ssize_t index);
/* 1 with a new reference in *result, or 0 with NULL. The index must be valid. */
int oracle_get_slot(struct _PyInterpreterFrame *frame, Py_ssize_t index, unsigned flags, PyObject **result);

/* Fields. Of a shim frame only the owner, the executable and the previous frame mean anything. */
int oracle_owner(struct _PyInterpreterFrame *frame);
PyObject *oracle_executable(struct _PyInterpreterFrame *frame);
PyObject *oracle_function(struct _PyInterpreterFrame *frame);
PyObject *oracle_frame_obj(struct _PyInterpreterFrame *frame);
struct _PyInterpreterFrame *oracle_previous(struct _PyInterpreterFrame *frame);
/* Index of the last (3.11, 3.12) or current instruction, in code units. */
Py_ssize_t oracle_instr_index(struct _PyInterpreterFrame *frame);
/* Slots that the frame's stack field covers, or ORACLE_STACK_UNKNOWN. */
Py_ssize_t oracle_stack_depth(struct _PyInterpreterFrame *frame);
/* The bits of a slot, tag included. */
uintptr_t oracle_slot_bits(struct _PyInterpreterFrame *frame, Py_ssize_t index);
/* The bits of an empty slot, and of a slot that borrows `object` (tagged where
 * slots are tagged). */
uintptr_t oracle_null_bits(void);
uintptr_t oracle_borrowed_bits(PyObject *object);
/* Whether every instruction in front of the first RESUME has run. */
int oracle_prologue_ran(struct _PyInterpreterFrame *frame);
/* Whether the generator that owns the frame has finished; 0 for other owners. */
int oracle_generator_finished(struct _PyInterpreterFrame *frame);

/* The frame that runs, or NULL. To a hook that is the caller of its own frame,
 * which up to 3.13 is not linked to it yet. */
struct _PyInterpreterFrame *oracle_current_frame(void);

/* What a Python frame is, besides its slots; NULL for none. The same values as
 * LOCALSPLUS_UNSTARTED and so on, and LOCALSPLUS_PARAMETER_*. */
PyObject *oracle_globals(struct _PyInterpreterFrame *frame);
PyObject *oracle_builtins(struct _PyInterpreterFrame *frame);
PyObject *oracle_namespace(struct _PyInterpreterFrame *frame);
PyObject *oracle_closure(struct _PyInterpreterFrame *frame);
PyObject *oracle_frame_object(struct _PyInterpreterFrame *frame);
int oracle_frame_state(struct _PyInterpreterFrame *frame);
int oracle_line(struct _PyInterpreterFrame *frame);
int oracle_lasti(struct _PyInterpreterFrame *frame);
int oracle_parameter(struct _PyInterpreterFrame *frame, Py_ssize_t index);
/* The frame that f_back would show, of a frame that is running. */
struct _PyInterpreterFrame *oracle_caller(struct _PyInterpreterFrame *frame);
/* The frame that this thread is running, past shim and incomplete ones. */
struct _PyInterpreterFrame *oracle_running_frame(void);

/* Where a frame object or a generator, coroutine or async generator keeps its
 * frame. The second is NULL for any other object; it does not create a frame
 * object, as gi_frame would. */
struct _PyInterpreterFrame *oracle_frame_of_frame_object(PyObject *frame_object);
struct _PyInterpreterFrame *oracle_frame_of_generator(PyObject *generator);

/* Free-threaded 3.13 never frees a code object, function or class that is made once
 * there has been a second thread. Called before that, this interpreter does. */
void oracle_suppress_immortalization(void);

/* Hand-made frames: memory in the interpreter's own format that no interpreter
 * ever ran. Everything not set is poison, on which a reader that follows it
 * crashes. References are borrowed. NULL with MemoryError. */
struct _PyInterpreterFrame *oracle_new_frame(PyObject *executable, Py_ssize_t nslots, int owner);
void oracle_free_frame(struct _PyInterpreterFrame *frame);
void oracle_set_function(struct _PyInterpreterFrame *frame, PyObject *function);
void oracle_set_slot_bits(struct _PyInterpreterFrame *frame, Py_ssize_t index, uintptr_t bits);
void oracle_set_stack_depth(struct _PyInterpreterFrame *frame, Py_ssize_t depth);
void oracle_set_started(struct _PyInterpreterFrame *frame, int started);
void oracle_set_generator_finished(struct _PyInterpreterFrame *frame, int finished);

#endif /* LOCALSPLUS_ORACLE_H */
