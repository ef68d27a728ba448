/* localsplus: the local variables of a CPython interpreter frame, by index.
 *
 * One binary serves CPython 3.11 to 3.15, and later ones that export
 * PyUnstable_InterpreterFrame_GetLocal. No internal CPython header is needed.
 *
 * Vocabulary: an interpreter frame has co_nlocalsplus *slots*, in CPython's
 * own order: locals (arguments first), then cell variables that are not
 * arguments, then free variables. An index is valid in
 * [0, localsplus_count(frame)).
 *
 * Threads: every function but localsplus_abi_version needs an attached thread
 * state (the GIL, or an attached thread in a free-threaded build).
 *
 * Frames: `frame` must be alive and must not be running in another thread.
 * Allowed are a frame that the calling thread is evaluating (in a PEP 523
 * hook, or further down its own stack), the frame of a suspended generator,
 * coroutine or async generator that the caller holds, and the frame of a frame
 * object that the caller holds. A frame whose own locals the interpreter is
 * releasing at this moment (seen from a finaliser) must not be read.
 *
 * References: a `PyObject *` handed out is a new strong reference that the
 * caller owns. On any error the caller owns nothing.
 *
 * Errors: a function that fails returns -1 or NULL with a Python exception
 * set, unless its comment says otherwise. An exception that was pending before
 * the call stays pending unless the call fails. If no supported provider can
 * read this interpreter's frames, the answer is RuntimeError, with the reason.
 *
 * The reading functions never run Python code, never allocate (unless their
 * comments say so), never modify the frame, never create a frame object and
 * never release the GIL (in a free-threaded build, reading a cell may wait for
 * its lock). The one exception is the first call in the process: it chooses the
 * provider (see localsplus_init), for which it runs a few lines of Python.
 */
#ifndef LOCALSPLUS_H
#define LOCALSPLUS_H

#include <Python.h>

/* How the functions are declared. Define before including this header:
 *
 *  LOCALSPLUS_STATIC  when linking the static library. The functions then stay
 *                     inside the module that links it: they are not exported
 *                     from it, whatever its own visibility settings are.
 *  LOCALSPLUS_EXPORT  when building a shared library of your own that hands the
 *                     functions on. (Link it with the archive that cargo makes:
 *                     in the installed one they are hidden for good.)
 *  neither            when linking the shared library.
 *
 * The CMake targets and pkg-config files say which. A LOCALSPLUS_API of your
 * own prevails. */
#ifndef LOCALSPLUS_API
#  if defined(_WIN32)
#    if defined(LOCALSPLUS_STATIC)
#      define LOCALSPLUS_API
#    elif defined(LOCALSPLUS_EXPORT)
#      define LOCALSPLUS_API __declspec(dllexport)
#    else
#      define LOCALSPLUS_API __declspec(dllimport)
#    endif
#  elif defined(__GNUC__)
#    if defined(LOCALSPLUS_STATIC)
#      define LOCALSPLUS_API __attribute__((visibility("hidden")))
#    else
#      define LOCALSPLUS_API __attribute__((visibility("default")))
#    endif
#  else
#    define LOCALSPLUS_API
#  endif
#endif

/* The release that this header belongs to, for #if. */
#define LOCALSPLUS_VERSION_MAJOR 0
#define LOCALSPLUS_VERSION_MINOR 1
#define LOCALSPLUS_VERSION_PATCH 0
#define LOCALSPLUS_VERSION_STRING "0.1.0"

/* The version of this binary interface. It changes when a function or constant
 * is removed or changes its meaning; additions keep it. */
#define LOCALSPLUS_ABI_VERSION 1

#ifdef __cplusplus
extern "C" {
#endif

struct _PyInterpreterFrame;

/* The LOCALSPLUS_ABI_VERSION that the linked library was built with. Cannot
 * fail; needs no thread state; touches no interpreter. Since 0.1. */
LOCALSPLUS_API int localsplus_abi_version(void);

/* Choose the provider now instead of at the first call: 0, or -1 with
 * RuntimeError. Idempotent; the outcome, a refusal too, is final for the
 * process. It may be called from a PEP 523 hook, with an exception pending
 * (which is kept), and from several threads at once. While it checks the
 * interpreter it installs an eval-frame function for a moment and runs a few
 * lines of Python; a localsplus call that this code provokes in the same thread
 * (from an audit hook, say) answers -1 with RuntimeError.
 *
 * What gets in the way of the check decides nothing: for want of memory, say, or
 * when a signal handler raises in the middle of it, the answer is -1 with that
 * exception, and the next call, of whatever function, tries again. A process
 * forked meanwhile chooses for itself. Since 0.1. */
LOCALSPLUS_API int localsplus_init(void);

/* What answers in this process: "official", "layout 3.14", "layout 3.13t", ...
 * If an official symbol was present but failed its proof, the reason follows in
 * parentheses. NULL if localsplus refuses this interpreter or could not check it
 * now (no exception is set: localsplus_init says why; one that got in the way is
 * raised in this thread as soon as it runs Python again). Chooses the provider if
 * need be. The string lives as long as the process. Since 0.1. */
LOCALSPLUS_API const char *localsplus_provider(void);

/* The value in slot `index`.
 *  1: `*result` is a new strong reference.
 *  0: the slot has no value (unbound, deleted, hidden, an empty cell, a free
 *     variable of a class body, a finished frame); `*result` is NULL.
 * -1: `*result` is NULL, and an exception is set: IndexError for an index
 *     outside [0, count), ValueError for a NULL argument or a frame without
 *     Python code, RuntimeError if localsplus refuses this interpreter.
 * Since 0.1. */
LOCALSPLUS_API int localsplus_get_local(struct _PyInterpreterFrame *frame, Py_ssize_t index, PyObject **result);

/* All slots at once: fills `result[0 .. count)` with new strong references,
 * NULL where a slot has no value, and returns count (0 for a frame without
 * slots; `result` may then be any non-NULL pointer). If `capacity` is less than
 * count, that is ValueError and nothing is written. -1 on error. Since 0.1. */
LOCALSPLUS_API Py_ssize_t localsplus_get_locals(struct _PyInterpreterFrame *frame, PyObject **result, Py_ssize_t capacity);

/* Like localsplus_get_local, changed by `flags`, a set of:
 *  LOCALSPLUS_HIDDEN    also answer hidden slots (the iteration variables of
 *                       comprehensions inlined into a module or class body).
 *  LOCALSPLUS_RAW_CELL  answer the cell object itself, also when it is empty;
 *                       an argument that has not been put into its cell yet is
 *                       answered as it is.
 * Any other bit is ValueError. Since 0.1. */
LOCALSPLUS_API int localsplus_get_slot(struct _PyInterpreterFrame *frame, Py_ssize_t index, unsigned flags, PyObject **result);
#define LOCALSPLUS_HIDDEN   1u
#define LOCALSPLUS_RAW_CELL 2u

/* The number of slots (co_nlocalsplus), or -1 with an exception. Answers for
 * every Python frame, a finished generator's included. Since 0.1. */
LOCALSPLUS_API Py_ssize_t localsplus_count(struct _PyInterpreterFrame *frame);

/* A new reference to a tuple of str: the name of each slot, by index, or NULL
 * with an exception. Two slots may carry the same name. Since 0.1. */
LOCALSPLUS_API PyObject *localsplus_names(struct _PyInterpreterFrame *frame);

/* What slot `index` is: a set of LOCALSPLUS_KIND_* bits, or -1 with an
 * exception. A slot can be several things: a captured argument is
 * ARG | LOCAL | CELL. Since 0.1. */
LOCALSPLUS_API int localsplus_kind(struct _PyInterpreterFrame *frame, Py_ssize_t index);
#define LOCALSPLUS_KIND_ARG    0x01 /* one of the function's parameters, on every version */
#define LOCALSPLUS_KIND_HIDDEN 0x10
#define LOCALSPLUS_KIND_LOCAL  0x20
#define LOCALSPLUS_KIND_CELL   0x40
#define LOCALSPLUS_KIND_FREE   0x80

/* A new reference to the code object that the frame runs, or NULL with an
 * exception. Since 0.1. */
LOCALSPLUS_API PyObject *localsplus_code(struct _PyInterpreterFrame *frame);

/* The offset of the frame's instruction in its bytecode, in bytes, as
 * PyUnstable_InterpreterFrame_GetLasti of the running version counts it (and as
 * it would on 3.11): of the instruction that ran last, or, from 3.13 on, in a
 * frame that has not started, of the first one. Before 3.13 such a frame has a
 * negative offset, which is even: -1 is only ever the answer of a failed call,
 * with an exception set. Since 0.1. */
LOCALSPLUS_API int localsplus_lasti(struct _PyInterpreterFrame *frame);

/* The slot that `name`, a str, stands for now, or -1 with an exception: KeyError if
 * no slot has that name, TypeError if it is no str.
 *
 * Usually a name has one slot, in every frame of that code object, so that the
 * index may be kept. But an inlined comprehension whose variable is called like a
 * variable of an enclosing function has two (localsplus_indexes tells); then the
 * first one that has a value counts, which is what the code itself sees there, and
 * frame.f_locals from 3.13 on. A closed-over variable that the function does not
 * use has no slot; names of a module or class body are in a namespace and have
 * none; the variables of comprehensions inlined there have hidden ones
 * (LOCALSPLUS_HIDDEN reads them). Since 0.1. */
LOCALSPLUS_API Py_ssize_t localsplus_index(struct _PyInterpreterFrame *frame, PyObject *name);

/* A new reference to a tuple of int: all slots of that name, in ascending order,
 * empty if there are none; or NULL with an exception. Allocates. Since 0.1. */
LOCALSPLUS_API PyObject *localsplus_indexes(struct _PyInterpreterFrame *frame, PyObject *name);

/* A read-only mapping from the name of each slot to its index, made once per code
 * object and kept with it (PEP 523's co_extra), so that a guard can look its name up
 * when it is made, and read by index ever after. A new reference, or NULL with an
 * exception. Of two slots of one name it has the first: localsplus_indexes tells
 * both. It is made anew each time on 3.11, where two interpreters may share a code
 * object, and in free-threaded builds, whose code objects do not keep two threads
 * apart there. Since 0.1. */
LOCALSPLUS_API PyObject *localsplus_name_map(struct _PyInterpreterFrame *frame);

/* What `name` stands for now: the value in the slot that localsplus_index answers,
 * also if it is hidden; in a module or class body else what the namespace has.
 *  1: `*result` is a new strong reference.
 *  0: the name has a slot, but no value; `*result` is NULL.
 * -1: `*result` is NULL, and an exception is set: KeyError if there is no such
 *     name, TypeError if it is no str, ValueError if the namespace is no dict (a
 *     metaclass can choose another mapping, which only Python code can read), or
 *     as for localsplus_get_local.
 * A namespace of a class derived from dict is read as the dict that it is. Runs no
 * Python code, unless the namespace has keys that are no str and compare
 * themselves with it: what they raise is the exception. Since 0.1. */
LOCALSPLUS_API int localsplus_get_by_name(struct _PyInterpreterFrame *frame, PyObject *name, PyObject **result);

/* A new dict of all names that have a value, as localsplus_get_by_name answers
 * them, in the order of their slots, or NULL with an exception. Unlike
 * frame.f_locals it makes no frame object, and does not change with the frame. What
 * somebody has added to a function's f_locals is not in it.
 *
 * In a module or class body it is a copy of the namespace, with the variables of an
 * inlined comprehension that is running; the cells that the interpreter keeps in a
 * class body for itself (__class__, __classdict__, ...) are left out. Allocates.
 * Since 0.1. */
LOCALSPLUS_API PyObject *localsplus_dict(struct _PyInterpreterFrame *frame);

/* The arguments that a frame was called with, ready for
 * PyObject_Vectorcall(callable, args, nargsf, kwnames). It owns a reference to
 * each of them and to kwnames, and does not need the frame any more. It may be
 * moved (copied, when only one of the copies is used from then on). */
typedef struct {
    PyObject **args;   /* positional arguments, then the values of keyword arguments; args[-1] is free, and NULL */
    size_t nargsf;     /* PyVectorcall_NARGS(nargsf) positional arguments, PY_VECTORCALL_ARGUMENTS_OFFSET set */
    PyObject *kwnames; /* a tuple of str, or NULL if there are no keyword arguments */
} localsplus_arguments;

/* The arguments of a frame that has not started, as a PEP 523 hook sees it: one at
 * its first instruction. Called with them, the frame's function starts with the
 * same locals. (The call of a generator function is such a frame, a resumed
 * generator is not.)
 *
 * Positional arguments come first, a method's self and those in *args included;
 * then keyword-only ones and those in **kwargs, by name. Defaults have been filled
 * in. An argument that is a cell object is passed as it is. Code without
 * parameters (a module, a class body) has no arguments: args is not NULL even so.
 *
 * 0, or -1 with `*arguments` cleared and an exception set: ValueError for a frame
 * that has started, MemoryError, or as localsplus_get_slot with flags. What
 * `*arguments` held before is overwritten, not released. Allocates; where an
 * allocation may start a garbage collection (3.11), that may run finalisers.
 * Since 0.1. */
LOCALSPLUS_API int localsplus_arguments_get(struct _PyInterpreterFrame *frame, localsplus_arguments *arguments);

/* Releases what localsplus_arguments_get filled in, and clears it: args and
 * kwnames NULL, nargsf 0. Nothing happens if it is cleared already, or NULL. May
 * run Python code (finalisers). Cannot fail. Since 0.1. */
LOCALSPLUS_API void localsplus_arguments_clear(localsplus_arguments *arguments);

/* ---- what a frame is, besides its slots ----
 *
 * All of these answer from the fields of the frame. With the provider "official"
 * on a version whose layout is not known, they are RuntimeError, except for
 * localsplus_code, localsplus_lasti and localsplus_line, which the interpreter
 * itself answers from 3.12 on. */

/* The function that the frame runs.
 *  1: `*result` is a new reference to a function. The code of a module or class
 *     body, and that of exec(), is in one as well, which the interpreter makes up.
 *  0: the frame has let go of it, which a finished generator's has; `*result` is
 *     NULL.
 * -1: `*result` is NULL, and an exception is set: ValueError for a NULL argument
 *     or a frame without Python code. Since 0.1. */
LOCALSPLUS_API int localsplus_function(struct _PyInterpreterFrame *frame, PyObject **result);

/* A new reference to the frame's globals (f_globals), a dict, or on 3.15 perhaps a
 * frozendict; NULL with an exception, which is ValueError where localsplus_function
 * answers 0: they belong to the function. Since 0.1. */
LOCALSPLUS_API PyObject *localsplus_globals(struct _PyInterpreterFrame *frame);

/* The same for where names are looked up that are not in the globals
 * (f_builtins). Since 0.1. */
LOCALSPLUS_API PyObject *localsplus_builtins(struct _PyInterpreterFrame *frame);

/* The mapping in which the code of a module, of a class body, or of exec() keeps
 * its names. It is the object itself, not a copy.
 *  1: `*result` is a new reference.
 *  0: a function, whose variables are in its slots, or a frame that has been
 *     cleared; `*result` is NULL.
 * -1: as localsplus_function. Since 0.1. */
LOCALSPLUS_API int localsplus_namespace(struct _PyInterpreterFrame *frame, PyObject **result);

/* The function's closure, where the cells of its free variables are until the
 * frame has started.
 *  1: `*result` is a new reference to a tuple of cells.
 *  0: the function has no free variables, or localsplus_function answers 0;
 *     `*result` is NULL.
 * -1: as localsplus_function. Since 0.1. */
LOCALSPLUS_API int localsplus_closure(struct _PyInterpreterFrame *frame, PyObject **result);

/* The line that the frame is at, as f_lineno tells while no trace function has
 * moved it; -1 with an exception, or -1 without one if the instruction belongs to
 * no line. From 3.13 on that is so before a function has started that has free
 * variables or captures its parameters. (Ask for co_firstlineno, then.)
 * While an exception is pending, -1 is a failure only if localsplus_count fails,
 * too. Since 0.1. */
LOCALSPLUS_API int localsplus_line(struct _PyInterpreterFrame *frame);

/* How far the frame has come, or -1 with an exception:
 *  LOCALSPLUS_UNSTARTED  none of the function's own code has run. Either it is
 *                        being called, as a PEP 523 hook sees it: the arguments are
 *                        in the slots, and nothing else is. Or it is in a generator
 *                        that nobody has asked for a value yet: then
 *                        localsplus_is_generator answers 1.
 *  LOCALSPLUS_EXECUTING  a thread is running it, or one of the functions that it
 *                        called. A hook that is handed the frame of a generator to
 *                        go on with sees this, also the first time.
 *  LOCALSPLUS_SUSPENDED  in a generator, at a yield or await.
 *                        Before 3.14, already while trace and profile functions
 *                        and sys.monitoring are told of that.
 *  LOCALSPLUS_FINISHED   it has returned or raised. If a frame object has survived
 *                        it, the locals are still there; in a generator they are
 *                        not.
 *  LOCALSPLUS_CLEARED    frame.clear() has emptied it. (A frame without slots and
 *                        namespace stays FINISHED.)
 * For a generator, coroutine or async generator, this is what
 * inspect.getgeneratorstate() and its siblings tell. Since 0.1. */
LOCALSPLUS_API int localsplus_state(struct _PyInterpreterFrame *frame);
#define LOCALSPLUS_UNSTARTED 0
#define LOCALSPLUS_EXECUTING 1
#define LOCALSPLUS_SUSPENDED 2
#define LOCALSPLUS_FINISHED  3
#define LOCALSPLUS_CLEARED   4

/* 1 if the frame is in a generator, coroutine or async generator, and so can be
 * gone on with; 0 if not; -1 with an exception. It is not while it is being called
 * to make one, nor when a frame object has survived the generator. Since 0.1. */
LOCALSPLUS_API int localsplus_is_generator(struct _PyInterpreterFrame *frame);

/* The frame object, if somebody has asked the interpreter for one: none is ever
 * created here.
 *  1: `*result` is a new reference.
 *  0: there is none; `*result` is NULL.
 * -1: as localsplus_function. Since 0.1. */
LOCALSPLUS_API int localsplus_frame_object(struct _PyInterpreterFrame *frame, PyObject **result);

/* The number of parameters, *args and **kwargs included, which are the first
 * slots; or -1 with an exception. Since 0.1. */
LOCALSPLUS_API Py_ssize_t localsplus_parameter_count(struct _PyInterpreterFrame *frame);

/* What parameter slot `index` is, or -1 with an exception: IndexError for an index
 * outside [0, localsplus_count(frame)). LOCALSPLUS_PARAMETER_NONE: a slot that is
 * no parameter. Since 0.1. */
LOCALSPLUS_API int localsplus_parameter(struct _PyInterpreterFrame *frame, Py_ssize_t index);
#define LOCALSPLUS_PARAMETER_NONE            0
#define LOCALSPLUS_PARAMETER_POSITIONAL_ONLY 1 /* in front of / */
#define LOCALSPLUS_PARAMETER_POSITIONAL      2 /* by position or by name */
#define LOCALSPLUS_PARAMETER_KEYWORD_ONLY    3 /* after * */
#define LOCALSPLUS_PARAMETER_VAR_POSITIONAL  4 /* *args, a tuple */
#define LOCALSPLUS_PARAMETER_VAR_KEYWORD     5 /* **kwargs, a dict */

/* ---- ways to a frame ----
 *
 * A frame answered is borrowed. It stays where it is until the function returns
 * or the generator ends: if there is a frame object, the frame then moves into it.
 * So do not keep its address while Python code runs that could do that. */

/* The frame below, which called this one: the frame that f_back is about. Like
 * f_back, this passes over shim frames and frames that have not reached their own
 * code.
 *  1: `*result` is a frame.
 *  0: there is none, and `*result` is NULL: the end of the stack, or a generator
 *     that is not running, or a frame that has not started (the caller of the
 *     frame that a hook is handed is localsplus_current_frame).
 * -1: `*result` is NULL, and an exception is set.
 * Also answers for a shim frame. Since 0.1. */
LOCALSPLUS_API int localsplus_previous(struct _PyInterpreterFrame *frame, struct _PyInterpreterFrame **result);

/* The frame that the calling thread is running; no frame object is created, as
 * PyEval_GetFrame would. In a PEP 523 hook that is the caller of the frame that
 * the hook is handed.
 *  1: `*result` is a frame.
 *  0: the thread runs no Python code; `*result` is NULL.
 * -1: `*result` is NULL, and an exception is set. Since 0.1. */
LOCALSPLUS_API int localsplus_current_frame(struct _PyInterpreterFrame **result);

/* The frame of a frame object, or NULL with an exception: TypeError for any other
 * object, ValueError for NULL. Since 0.1. */
LOCALSPLUS_API struct _PyInterpreterFrame *localsplus_frame_of_object(PyObject *frame_object);

/* The frame of a generator, coroutine or async generator, or NULL with an
 * exception: TypeError for any other object, ValueError for NULL. No frame object
 * is created, as gi_frame would. A finished generator has one, too, without
 * values. Since 0.1. */
LOCALSPLUS_API struct _PyInterpreterFrame *localsplus_frame_of_generator(PyObject *generator);

/* ---- hooks: evaluating a frame, or something in its place ---------------- */

/* What a hook is called with: its data, and who is next. `data` and `next` never
 * change. Valid until the interpreter ends. */
typedef struct {
    void *data; /* as given to localsplus_hook_install */
    /* What would be called for the frame if this hook were not there: the hook that
     * was installed before it, or the interpreter's own function. */
    PyObject *(*next)(PyThreadState *thread, struct _PyInterpreterFrame *frame, int throwflag);
    /* Private fields follow. */
} localsplus_hook;

/* An eval-frame function (PEP 523): called for every frame that the interpreter is
 * about to run, and for every resumption of a generator. It does one of:
 *  - return hook->next(thread, frame, throwflag);
 *  - return localsplus_evaluate_in_place(frame, replacement);
 *  - localsplus_consume(frame), and return something of its own;
 *  - set an exception and return hook->next(thread, frame, 1): it is raised as if by
 *    the frame's first instruction, or where a generator is to be resumed.
 * Nothing else: a hook that returns without one of these leaks the frame, from 3.12 on.
 * If throwflag is not 0, an exception is set that is to be raised in a generator: let
 * such a call go on.
 *
 * It has the three parameters of CPython's own _PyFrameEvalFunction, in the same
 * registers, plus the hook: this costs three instructions a call over an eval-frame
 * function that is installed by hand. */
typedef PyObject *(*localsplus_hook_function)(PyThreadState *thread, struct _PyInterpreterFrame *frame, int throwflag,
                                              const localsplus_hook *hook);

/* Install a hook in the calling thread's interpreter, on top of what is installed
 * there (or where it was, if it was removed from below hooks of localsplus that are
 * still installed). A hook is a function and its data: 1 if it was installed, 0 if it is
 * installed already, -1 with an exception: ValueError if `function` is NULL,
 * RuntimeError if 64 hooks are installed in the process or this interpreter has no
 * eval-frame functions, MemoryError.
 *
 * If somebody puts back what was installed before a hook, it is called no more, and to
 * install it again is answered with 1. (With 0 if a function of somebody else's is
 * installed by then that was not there before: nobody knows what it calls.)
 *
 * All threads of the interpreter run through it; other interpreters do not. `data`
 * must stay valid until the interpreter ends, even if the hook is removed: another
 * thread may be inside. CPython calls no eval-frame function for what one of its
 * specialised instructions calls in place: an __init__ called through its class on
 * 3.13 (default build), an __getitem__ on early 3.11 versions.
 *
 * On 3.15, whether the interpreter may specialize calls under an eval-frame function
 * (_PyInterpreterState_SetEvalFrameAllowSpecialization) stays as it was under the one
 * before. Works where localsplus refuses to read frames, too. Since 0.1. */
LOCALSPLUS_API int localsplus_hook_install(localsplus_hook_function function, void *data);

/* Remove a hook from the calling thread's interpreter: 1, or 0 if it is not
 * installed, or -1 with an exception. What was installed before it is put back. If
 * something was installed since, that stays, and what it takes for the function
 * before it passes everything on from now on; it is put back when that is possible.
 *
 * Threads that are inside `function` finish; no call begins after this has returned,
 * except that in a free-threaded build another thread may be just about to make one.
 * When an interpreter ends, its hooks are removed. Since 0.1. */
LOCALSPLUS_API int localsplus_hook_remove(localsplus_hook_function function, void *data);

/* Dispose of the frame that an eval-frame function was given, without running it: the
 * function then returns something of its own, or NULL with an exception set. What the
 * frame holds is released (on 3.11 when that function returns); the arguments belong
 * to the caller, too, who still has them. An exception that is set stays so. Tools
 * (sys.settrace, sys.setprofile, sys.monitoring) see nothing.
 *
 * 0, or -1 with an exception: ValueError for a frame that has begun to run (a generator
 * that is resumed, say) or that runs no Python code, RuntimeError if localsplus refuses
 * this interpreter; the frame is as it was then. (SystemError if
 * hand-made code has caught the exception that unwinds it; then it is gone.) Only for
 * the frame that the running eval-frame function was given, and only once: it must not
 * be used afterwards. Since 0.1. */
LOCALSPLUS_API int localsplus_consume(struct _PyInterpreterFrame *frame);

/* Run `replacement` in place of the frame that an eval-frame function was given, with
 * the same arguments: a new reference to what it returns, or NULL with an exception,
 * for the eval-frame function to return. The frame is disposed of, as by
 * localsplus_consume, when its arguments have been taken, and before `replacement`
 * runs. No exception may be set before.
 *
 * `replacement` is
 *  - a code object: it is run with the function's globals, builtins and closure (cells
 *    are found by the names of free variables). It needs the same kinds of parameters;
 *    defaults have been filled in. In place of a module or class body it runs in that
 *    namespace, with the builtins that the globals name by then.
 *  - a callable: it is called.
 * Of a generator, coroutine or async generator function, the call that makes the
 * generator is replaced, never a resumption.
 *
 * Tools, tracebacks and sys._getframe see a call of the replacement by the caller, and
 * nothing of the frame. Eval-frame functions see the replacement's frame, too, and
 * that of the original function if the replacement calls it: keep the hook from
 * replacing those again. (A replacement that is replaced in turn, without end,
 * overflows the C stack: no frame ever runs that the recursion limit would count.)
 * Arguments live until the call returns.
 *
 * ValueError that names 'frame' (it has begun to run, or runs no Python code), and
 * RuntimeError if localsplus refuses this interpreter: the frame is as it was. After
 * every other exception it is gone: TypeError if `replacement` is neither of both or
 * does not take the arguments, ValueError if it is NULL, or code that has a free
 * variable that the frame's has not, or that has its variables in a namespace and the
 * frame's has not, MemoryError, or what it raises itself. Since 0.1. */
LOCALSPLUS_API PyObject *localsplus_evaluate_in_place(struct _PyInterpreterFrame *frame, PyObject *replacement);

#ifdef __cplusplus
}
#endif

#endif /* LOCALSPLUS_H */
