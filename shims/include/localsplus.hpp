// localsplus for C++17: owned references and a range over a frame's slots, on
// top of localsplus.h, where meaning, threads and lifetimes are documented.
//
// A call that fails throws localsplus::error, with the Python exception left set
// in the calling thread, as in the C API: catch it where your function returns to
// Python, and return NULL or -1 there. Not in a hook, which has a frame to dispose
// of: there, return hook->next(thread, frame, 1), which raises the exception in the
// frame, or clear it and go on.
//
// (Exceptions rather than std::expected: that is C++23, and what can fail here are
// programming errors and a refused interpreter, which no caller handles slot by
// slot.) "No value" is no failure: it is an empty object. Without exceptions in your
// build, use localsplus.h.
#ifndef LOCALSPLUS_HPP
#define LOCALSPLUS_HPP

#include "localsplus.h"

#include <cstddef>
#include <exception>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#if !defined(__cpp_exceptions) && !defined(_CPPUNWIND)
#  error "localsplus.hpp throws exceptions; include localsplus.h instead"
#endif

namespace localsplus {

// So that modules made with different versions of this header can share a process.
inline namespace v0_1_0 {

static_assert(LOCALSPLUS_VERSION_MAJOR == 0 && LOCALSPLUS_VERSION_MINOR == 1 && LOCALSPLUS_VERSION_PATCH == 0,
              "rename the inline namespace along with the version");

// A localsplus function failed; the Python exception that says why is set.
class error : public std::exception {
public:
    const char *what() const noexcept override { return "localsplus: a Python exception is set"; }
};

// A strong reference to a Python object, or empty. Copying and destroying one
// that is not empty needs an attached thread state.
class object {
public:
    object() noexcept = default;

    // Takes over a reference that the caller owns.
    [[nodiscard]] static object steal(PyObject *pointer) noexcept { return object(pointer); }

    // Takes a new reference.
    [[nodiscard]] static object borrow(PyObject *pointer) noexcept
    {
        Py_XINCREF(pointer);
        return object(pointer);
    }

    object(const object &other) noexcept : object(borrow(other.pointer_)) {}
    object(object &&other) noexcept : pointer_(std::exchange(other.pointer_, nullptr)) {}

    object &operator=(object other) noexcept
    {
        std::swap(pointer_, other.pointer_);
        return *this;
    }

    ~object() { Py_XDECREF(pointer_); }

    // The object, still owned by this; NULL if empty.
    [[nodiscard]] PyObject *get() const noexcept { return pointer_; }

    // The object, now owned by the caller.
    [[nodiscard]] PyObject *release() noexcept { return std::exchange(pointer_, nullptr); }

    explicit operator bool() const noexcept { return pointer_ != nullptr; }

private:
    explicit object(PyObject *pointer) noexcept : pointer_(pointer) {}

    PyObject *pointer_ = nullptr;
};

// What a slot is. It can be several things: a captured parameter is an argument,
// a local, and a cell variable.
class kind {
public:
    explicit constexpr kind(int bits) noexcept : bits_(bits) {}

    // LOCALSPLUS_KIND_* bits.
    [[nodiscard]] constexpr int bits() const noexcept { return bits_; }
    [[nodiscard]] constexpr bool is_argument() const noexcept { return (bits_ & LOCALSPLUS_KIND_ARG) != 0; }
    [[nodiscard]] constexpr bool is_hidden() const noexcept { return (bits_ & LOCALSPLUS_KIND_HIDDEN) != 0; }
    [[nodiscard]] constexpr bool is_local() const noexcept { return (bits_ & LOCALSPLUS_KIND_LOCAL) != 0; }
    [[nodiscard]] constexpr bool is_cell() const noexcept { return (bits_ & LOCALSPLUS_KIND_CELL) != 0; }
    [[nodiscard]] constexpr bool is_free() const noexcept { return (bits_ & LOCALSPLUS_KIND_FREE) != 0; }

private:
    int bits_;
};

// What frame::get_slot answers besides: LOCALSPLUS_HIDDEN, LOCALSPLUS_RAW_CELL.
enum class flags : unsigned {
    none = 0,
    hidden = LOCALSPLUS_HIDDEN,
    raw_cell = LOCALSPLUS_RAW_CELL,
};

[[nodiscard]] constexpr flags operator|(flags one, flags other) noexcept
{
    return static_cast<flags>(static_cast<unsigned>(one) | static_cast<unsigned>(other));
}

// How far a frame has come, as localsplus_state documents it.
enum class state {
    unstarted = LOCALSPLUS_UNSTARTED,
    executing = LOCALSPLUS_EXECUTING,
    suspended = LOCALSPLUS_SUSPENDED,
    finished = LOCALSPLUS_FINISHED,
    cleared = LOCALSPLUS_CLEARED,
};

// What parameter a slot is.
enum class parameter {
    none = LOCALSPLUS_PARAMETER_NONE,
    positional_only = LOCALSPLUS_PARAMETER_POSITIONAL_ONLY,
    positional = LOCALSPLUS_PARAMETER_POSITIONAL,
    keyword_only = LOCALSPLUS_PARAMETER_KEYWORD_ONLY,
    var_positional = LOCALSPLUS_PARAMETER_VAR_POSITIONAL,
    var_keyword = LOCALSPLUS_PARAMETER_VAR_KEYWORD,
};

namespace detail {

// Passes on what a C function answers, unless it is its -1.
template <typename T>
[[nodiscard]] inline T checked(T answer)
{
    if (answer == -1) {
        throw error();
    }
    return answer;
}

[[nodiscard]] inline object checked(PyObject *answer)
{
    if (answer == nullptr) {
        throw error();
    }
    return object::steal(answer);
}

}  // namespace detail

class slot_range;

// What frame::arguments() answers: the arguments of a call, owned. Destroying it
// needs an attached thread state.
class arguments {
public:
    explicit arguments(struct _PyInterpreterFrame *frame)
    {
        (void)detail::checked(localsplus_arguments_get(frame, &arguments_));
    }

    arguments(arguments &&other) noexcept : arguments_(std::exchange(other.arguments_, {nullptr, 0, nullptr})) {}
    arguments(const arguments &) = delete;

    arguments &operator=(arguments other) noexcept
    {
        std::swap(arguments_, other.arguments_);
        return *this;
    }

    ~arguments() { localsplus_arguments_clear(&arguments_); }

    // As PyObject_Vectorcall takes them; still owned by this.
    [[nodiscard]] const localsplus_arguments &get() const noexcept { return arguments_; }

#if !defined(Py_LIMITED_API) || Py_LIMITED_API >= 0x030C0000
    // Calls `callable` with them.
    [[nodiscard]] object call(PyObject *callable) const
    {
        return detail::checked(PyObject_Vectorcall(callable, arguments_.args, arguments_.nargsf, arguments_.kwnames));
    }
#endif

private:
    localsplus_arguments arguments_{nullptr, 0, nullptr};
};

// A borrowed frame: the caller keeps it alive, and no other thread runs it.
class frame {
public:
    explicit frame(struct _PyInterpreterFrame *pointer) noexcept : pointer_(pointer) {}

    [[nodiscard]] struct _PyInterpreterFrame *get() const noexcept { return pointer_; }

    // The number of slots.
    [[nodiscard]] Py_ssize_t count() const { return detail::checked(localsplus_count(pointer_)); }

    // A tuple of str: the name of each slot.
    [[nodiscard]] object names() const { return detail::checked(localsplus_names(pointer_)); }

    // The code object that the frame runs.
    [[nodiscard]] object code() const { return detail::checked(localsplus_code(pointer_)); }

    // The offset of the frame's instruction, as localsplus_lasti documents it.
    [[nodiscard]] int lasti() const { return detail::checked(localsplus_lasti(pointer_)); }

    // What slot `index` is.
    [[nodiscard]] localsplus::kind kind(Py_ssize_t index) const
    {
        return localsplus::kind(detail::checked(localsplus_kind(pointer_, index)));
    }

    // The value in slot `index`; empty if it has none.
    [[nodiscard]] object get_local(Py_ssize_t index) const
    {
        PyObject *value;
        (void)detail::checked(localsplus_get_local(pointer_, index, &value));
        return object::steal(value);
    }

    // Like get_local, changed by `flags`.
    [[nodiscard]] object get_slot(Py_ssize_t index, localsplus::flags flags) const
    {
        PyObject *value;
        (void)detail::checked(localsplus_get_slot(pointer_, index, static_cast<unsigned>(flags), &value));
        return object::steal(value);
    }

    // The values of all slots, by index; empty where a slot has none.
    [[nodiscard]] std::vector<object> get_locals() const
    {
        const auto size = static_cast<std::size_t>(count());
        std::vector<object> values(size);
        // One more than needed: data() of an empty vector may be NULL.
        std::vector<PyObject *> taken(size + 1);
        (void)detail::checked(localsplus_get_locals(pointer_, taken.data(), static_cast<Py_ssize_t>(size)));
        for (std::size_t index = 0; index < size; index++) {
            values[index] = object::steal(taken[index]);
        }
        return values;
    }

    // The slot that `name`, a str, stands for now.
    [[nodiscard]] Py_ssize_t index(PyObject *name) const { return detail::checked(localsplus_index(pointer_, name)); }

    // All slots of that name.
    [[nodiscard]] std::vector<Py_ssize_t> indexes(PyObject *name) const
    {
        object found = detail::checked(localsplus_indexes(pointer_, name));
        std::vector<Py_ssize_t> indexes(static_cast<std::size_t>(PyTuple_Size(found.get())));
        for (std::size_t position = 0; position < indexes.size(); position++) {
            PyObject *number = PyTuple_GetItem(found.get(), static_cast<Py_ssize_t>(position));
            indexes[position] = PyLong_AsSsize_t(number);
        }
        return indexes;
    }

    // A mapping from names to indexes, kept with the code object.
    [[nodiscard]] object name_map() const { return detail::checked(localsplus_name_map(pointer_)); }

    // What `name`, a str, stands for now; empty if it has no value.
    [[nodiscard]] object get_by_name(PyObject *name) const
    {
        PyObject *value;
        (void)detail::checked(localsplus_get_by_name(pointer_, name, &value));
        return object::steal(value);
    }

    // A new dict of all names that have a value.
    [[nodiscard]] object dict() const { return detail::checked(localsplus_dict(pointer_)); }

    // The arguments that it was called with, as localsplus_arguments_get documents
    // them.
    [[nodiscard]] localsplus::arguments arguments() const { return localsplus::arguments(pointer_); }

    // The function that the frame runs; empty if it has let go of it.
    [[nodiscard]] object function() const { return optional(localsplus_function); }

    // The globals and builtins of that function.
    [[nodiscard]] object globals() const { return detail::checked(localsplus_globals(pointer_)); }
    [[nodiscard]] object builtins() const { return detail::checked(localsplus_builtins(pointer_)); }

    // Where a module, class body or exec() keeps its names; empty in a function.
    [[nodiscard]] object namespace_() const { return optional(localsplus_namespace); }

    // A tuple of cells; empty if the function has no free variables.
    [[nodiscard]] object closure() const { return optional(localsplus_closure); }

    // The frame object, if there is one; none is created.
    [[nodiscard]] object frame_object() const { return optional(localsplus_frame_object); }

    // The line that the frame is at; none if its instruction belongs to no line.
    [[nodiscard]] std::optional<int> line() const
    {
        // Where this does not fail, neither does the line.
        (void)count();
        const int line = localsplus_line(pointer_);
        return line == -1 ? std::nullopt : std::optional<int>(line);
    }

    // How far the frame has come.
    [[nodiscard]] localsplus::state state() const
    {
        return static_cast<localsplus::state>(detail::checked(localsplus_state(pointer_)));
    }

    // Whether the frame is in a generator, coroutine or async generator.
    [[nodiscard]] bool is_generator() const { return detail::checked(localsplus_is_generator(pointer_)) != 0; }

    // The number of parameters, which are the first slots.
    [[nodiscard]] Py_ssize_t parameter_count() const { return detail::checked(localsplus_parameter_count(pointer_)); }

    // What parameter slot `index` is.
    [[nodiscard]] localsplus::parameter parameter(Py_ssize_t index) const
    {
        return static_cast<localsplus::parameter>(detail::checked(localsplus_parameter(pointer_, index)));
    }

    // The frame below, which called this one.
    [[nodiscard]] std::optional<frame> previous() const
    {
        struct _PyInterpreterFrame *below;
        return detail::checked(localsplus_previous(pointer_, &below)) ? std::optional<frame>(below) : std::nullopt;
    }

    // The frame that the calling thread is running.
    [[nodiscard]] static std::optional<frame> current()
    {
        struct _PyInterpreterFrame *running;
        return detail::checked(localsplus_current_frame(&running)) ? std::optional<frame>(running) : std::nullopt;
    }

    // The frame of a frame object.
    [[nodiscard]] static frame of_object(PyObject *frame_object)
    {
        return found(localsplus_frame_of_object(frame_object));
    }

    // The frame of a generator, coroutine or async generator.
    [[nodiscard]] static frame of_generator(PyObject *generator)
    {
        return found(localsplus_frame_of_generator(generator));
    }

    // Disposes of it without running it, as localsplus_consume documents.
    void consume() const { (void)detail::checked(localsplus_consume(pointer_)); }

    // Runs a code object or calls a callable in its place, as
    // localsplus_evaluate_in_place documents.
    [[nodiscard]] object evaluate_in_place(PyObject *replacement) const
    {
        return detail::checked(localsplus_evaluate_in_place(pointer_, replacement));
    }

    // for (localsplus::slot slot : frame.slots()) ...
    [[nodiscard]] slot_range slots() const;

private:
    [[nodiscard]] object optional(int (*ask)(struct _PyInterpreterFrame *, PyObject **)) const
    {
        PyObject *result;
        (void)detail::checked(ask(pointer_, &result));
        return object::steal(result);
    }

    [[nodiscard]] static frame found(struct _PyInterpreterFrame *pointer)
    {
        if (pointer == nullptr) {
            throw error();
        }
        return frame(pointer);
    }

    struct _PyInterpreterFrame *pointer_;
};

// One slot of a frame. It is read when asked, not before.
class slot {
public:
    slot(localsplus::frame frame, Py_ssize_t index) noexcept : frame_(frame), index_(index) {}

    [[nodiscard]] Py_ssize_t index() const noexcept { return index_; }

    // The variable's name, a str. CPython makes up some: ".0" is the iterator that
    // a comprehension or generator expression is given.
    [[nodiscard]] object name() const
    {
        PyObject *name = PyTuple_GetItem(frame_.names().get(), index_);
        // The code object keeps it alive.
        Py_XINCREF(name);
        return detail::checked(name);
    }

    [[nodiscard]] localsplus::kind kind() const { return frame_.kind(index_); }

    // As frame::get_local.
    [[nodiscard]] object value() const { return frame_.get_local(index_); }

private:
    localsplus::frame frame_;
    Py_ssize_t index_;
};

// What frame::slots() answers. It holds no reference.
class slot_range {
public:
    class iterator {
    public:
        using iterator_category = std::input_iterator_tag;
        using value_type = slot;
        using difference_type = Py_ssize_t;
        using pointer = void;
        using reference = slot;

        iterator(frame frame, Py_ssize_t index) noexcept : frame_(frame), index_(index) {}

        slot operator*() const noexcept { return slot(frame_, index_); }

        iterator &operator++() noexcept
        {
            ++index_;
            return *this;
        }

        iterator operator++(int) noexcept
        {
            iterator before = *this;
            ++index_;
            return before;
        }

        // Only those of one range are compared.
        friend bool operator==(const iterator &one, const iterator &other) noexcept
        {
            return one.index_ == other.index_;
        }

        friend bool operator!=(const iterator &one, const iterator &other) noexcept { return !(one == other); }

    private:
        frame frame_;
        Py_ssize_t index_;
    };

    slot_range(frame frame, Py_ssize_t count) noexcept : frame_(frame), count_(count) {}

    [[nodiscard]] iterator begin() const noexcept { return iterator(frame_, 0); }
    [[nodiscard]] iterator end() const noexcept { return iterator(frame_, count_); }
    [[nodiscard]] Py_ssize_t size() const noexcept { return count_; }
    [[nodiscard]] bool empty() const noexcept { return count_ == 0; }

private:
    frame frame_;
    Py_ssize_t count_;
};

inline slot_range frame::slots() const { return slot_range(*this, count()); }

// Chooses the provider now instead of at the first call.
inline void init() { (void)detail::checked(localsplus_init()); }

// What answers in this process; NULL if localsplus refuses this interpreter.
[[nodiscard]] inline const char *provider() noexcept { return localsplus_provider(); }

// Installs a hook in this thread's interpreter; false if it is installed already.
inline bool hook_install(localsplus_hook_function function, void *data = nullptr)
{
    return detail::checked(localsplus_hook_install(function, data)) != 0;
}

// Removes a hook from this thread's interpreter; false if it is not installed there.
inline bool hook_remove(localsplus_hook_function function, void *data = nullptr)
{
    return detail::checked(localsplus_hook_remove(function, data)) != 0;
}

}  // namespace v0_1_0

}  // namespace localsplus

#endif  // LOCALSPLUS_HPP
