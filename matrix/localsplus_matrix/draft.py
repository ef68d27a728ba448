"""What differs between a layout and a version's headers, and the layout file that this makes."""

import re
import textwrap
from dataclasses import dataclass

from .headers import Headers, Struct
from .layouts import BUILDS, Layout


# Of generators; numbers that no struct gives.
_STATES = ("generator.created", "generator.executing", "generator.finished")


@dataclass(frozen=True)
class _Part:
    """A part of a row that a struct of CPython's gives."""

    c: str
    rust: str
    free_threaded: str
    prefix: str  # of the names of its values
    field: str
    value: str  # what the row has in that field, of struct {T}
    imports: tuple[str, ...]

    def own(self, name: str) -> bool:
        return name.startswith(self.prefix) and name not in ("frame.stack_size", "frame.instr_is_next", *_STATES)


_PARTS = (
    _Part(
        "PyTupleObject",
        "PyTupleObject",
        "FreeThreadedTupleObject",
        "tuple.",
        "tuple_ob_item",
        "offset_of!({T}, ob_item)",
        (),
    ),
    _Part(
        "_PyInterpreterFrame",
        "PyInterpreterFrame",
        "FreeThreadedInterpreterFrame",
        "frame.",
        "frame",
        "frame_layout!(\n            {T},\n            executable: f_executable,\n            function: f_funcobj,\n"
        "            instruction: Next(instr_ptr),\n            stack_top: {stack_top}\n        )",
        ("frame_layout",),
    ),
    _Part(
        "PyCodeObject",
        "PyCodeObject",
        "FreeThreadedCodeObject",
        "code.",
        "code",
        "code_layout!({T}, co_tlbc: {co_tlbc})",
        ("code_layout",),
    ),
    _Part(
        "_frame",
        "PyFrameObject",
        "FreeThreadedFrameObject",
        "frame_object.",
        "frame_object",
        "frame_object_layout!({T})",
        ("frame_object_layout",),
    ),
    _Part(
        "(?:_PyGenObject|PyGenObject)",
        "PyGenObject",
        "FreeThreadedGenObject",
        "generator.",
        "generator",
        "GeneratorLayout {{\n            gi_iframe: offset_of!({T}, gi_iframe),\n"
        "            gi_frame_state: offset_of!({T}, gi_frame_state),\n            created: {created},\n"
        "            executing: {executing},\n            finished: {finished},\n        }}",
        ("GeneratorLayout",),
    ),
)
# The rows have a number for the first word of each of these parts of _Py_DebugOffsets.
_DEBUG_OFFSETS = (
    "thread_state",
    "interpreter_frame",
    "code_object",
    "pyobject",
    "tuple_object",
    "bytes_object",
    "gen_object",
)
_RUST_TYPES = {
    "char": "i8",
    "signed char": "i8",
    "unsigned char": "u8",
    "int8_t": "i8",
    "uint8_t": "u8",
    "_Bool": "bool",
    "short": "i16",
    "int16_t": "i16",
    "uint16_t": "u16",
    "int": "i32",
    "int32_t": "i32",
    "unsigned int": "u32",
    "uint32_t": "u32",
    "int64_t": "i64",
    "uint64_t": "u64",
    "Py_ssize_t": "isize",
    "Py_hash_t": "isize",
    "size_t": "usize",
    "uintptr_t": "usize",
    "PyObject": "H",
    "PyVarObject": "PyVarObject<H>",
    "_PyErr_StackItem": "PyErrStackItem",
    "_PyInterpreterFrame": "[Ptr; 1]",  # it ends a generator, and only its start counts
    "_PyStackRef": "StackRef",
}


def changes(old: Layout, new: Headers) -> list[str]:
    """One line per value that differs."""
    lines = []
    for name in old.values["Gil"]:
        told = {build: (old.values[build][name], new.values[build].get(name)) for build in BUILDS}
        differing = {build: change for build, change in told.items() if change[0] != change[1]}
        if not differing:
            continue
        texts = {build: " -> ".join("none" if value is None else str(value) for value in told[build]) for build in told}
        if len(set(texts.values())) == 1:
            lines.append(f"{name}: {texts['Gil']}")
        else:
            lines.append(f"{name}: " + ", ".join(f"{texts[build]} ({BUILDS[build]})" for build in differing))
    return lines


def draft(old: Layout, new: Headers) -> str:
    """The file src/layout/v3_X.rs of the headers' version: what has changed since the old one."""
    return _Draft(old, new).text()


class _Draft:
    def __init__(self, old: Layout, new: Headers) -> None:
        self.old = old
        self.new = new
        self.changed = {
            name
            for build in BUILDS
            for name, value in old.values[build].items()
            if new.values[build].get(name) != value
        }
        self.default = new.values["Gil"]
        self.moved = [part for part in _PARTS if any(part.own(name) for name in self.changed)]
        self.definitions = {part: {build: new.struct(part.c, build) for build in BUILDS} for part in self.moved}
        self.imports: set[str] = {"Build", "Layout", "Row"}
        self.objects: set[str] = {"FreeThreadedPyObject", "Header", "PyObject"}
        self.news: list[str] = []
        self.open: list[str] = []  # what a person has to decide

    @property
    def previous(self) -> str:
        return f"v3_{self.old.minor}"

    def text(self) -> str:
        overrides = [self._moved(part) for part in self.moved]
        overrides += self._function() + self._immortality() + self._states() + self._opcodes() + self._debug_offsets()
        self._taken_for_granted()
        structs = [struct for part in self.moved for struct in self._structs(part)]
        free_threaded, has_free_threaded = self._free_threaded()
        row = self._row(overrides)
        builds = self._builds(has_free_threaded)
        sections = [self._documentation(), self._uses(structs)]
        is_import = free_threaded.startswith("pub(super) use")
        if is_import:
            sections.append(free_threaded)
        sections += self._open_questions()
        if any("StackRef" in re.sub(r"//.*", "", struct) for struct in structs):
            sections.append("/// `_PyStackRef`: `uintptr_t bits`.\ntype StackRef = usize;")
        sections += [*structs, row]
        if not is_import:
            sections.append(free_threaded)
        sections += [builds, self._asserts()]
        return "\n\n".join(section for section in sections if section) + "\n"

    # What a row is made of.

    def _row(self, overrides: list[str]) -> str:
        base = f"{self.previous}::row::<H>(build)"
        body = "".join(f"        {override},\n" for override in [f"minor: {self.new.minor}", *overrides])
        if any(f"..{self.previous}." in override for override in overrides):
            start = f"    let {self.previous} = {base};\n"
            base = self.previous
        else:
            start = ""
        return (
            "pub(super) const fn row<H: Header>(build: Build) -> Row {\n"
            f"{start}    Row {{\n{body}        ..{base}\n    }}\n}}"
        )

    def _moved(self, part: _Part) -> str:
        return f"{part.field}: {self._value(part, self._type(part, 'Gil', 'H'), 'None')}"

    def _value(self, part: _Part, struct: str, co_tlbc: str) -> str:
        self.imports.update(part.imports)
        pointer = self.default["frame.stack_size"] == 8
        return part.value.format(
            T=struct,
            stack_top="Pointer(stackpointer)" if pointer else "Index(stacktop)",
            **{name.removeprefix("generator."): self.default[name] for name in _STATES},
            co_tlbc=co_tlbc,
        )

    def _function(self) -> list[str]:
        names = ("basicsize.function", "function.func_closure")
        if self.changed.isdisjoint(names):
            return []
        words = set()
        for build in BUILDS:
            size, closure = (self.new.values[build][name] for name in names)
            words.add((size - closure) // 8 - 1)
            if closure != self.old.values[build]["function.func_closure"] or size % 8:
                self.open.append(f"PyFunctionObject has changed before func_closure ({build}): see layout/object.rs")
        self.imports.add("FunctionLayout")
        self.news.append("the size of `PyFunctionObject`")
        return [f"function: FunctionLayout::of::<H, {min(words)}>()"]

    def _immortality(self) -> list[str]:
        if "count.immortal_from" not in self.changed:
            return []
        count = self.default["count.immortal_from"]
        self.imports.add("Immortality")
        self.news.append("the count from which on objects are immortal")
        value = {1 << 32: "None", (1 << 32) - 1: "Saturating"}.get(count, f"From({count:#_x})")
        return [f"immortality: Immortality::{value}"]

    def _states(self) -> list[str]:
        if self.changed.isdisjoint(_STATES):
            return []
        for name in _STATES:
            self._same_in_both_builds(name)
        self.news.append("the generator states")
        if any(part.field == "generator" for part in self.moved):
            return []
        self.imports.add("GeneratorLayout")
        numbers = "".join(
            f"            {name.removeprefix('generator.')}: {self.default[name]},\n"
            for name in _STATES
            if name in self.changed
        )
        return [f"generator: GeneratorLayout {{\n{numbers}            ..{self.previous}.generator\n        }}"]

    def _opcodes(self) -> list[str]:
        names = [name for name in self.old.fields if name.startswith("opcode.")]
        if self.changed.isdisjoint(names):
            return []
        self.imports.add("Opcodes")
        self.news.append("the opcodes")
        for name in names:
            self._same_in_both_builds(name)
        numbers = "".join(
            f"            {self.old.fields[name].rsplit('.', 1)[1]}: {self.default[name]},\n" for name in names
        )
        return [f"opcode: Opcodes {{\n{numbers}        }}"]

    def _debug_offsets(self) -> list[str]:
        names = [name for name in self.old.values["Gil"] if name.startswith("debug_offsets.")]
        if self.changed.isdisjoint(names):
            return []
        self.imports.add("DebugOffsets")
        self.news.append("the positions in `_Py_DebugOffsets`")
        values = self.old.values["Gil"]
        for name in names:
            self._same_in_both_builds(name)
            start = name.rsplit(".", 1)[0] + ".size"
            if values.get(start) is None or values[name] is None:
                continue
            before, now = values[name] - values[start], self.default.get(name, 0) - self.default[start]
            if before != now:
                self.open.append(f"{name} is {now} bytes after {start}, was {before}: see layout/cross_check.rs")
        if self.default["debug_offsets.position"] != 0:
            self.open.append("_PyRuntime no longer starts with _Py_DebugOffsets")
        lines = ""
        for part in _DEBUG_OFFSETS:
            position = self.default.get(f"debug_offsets.{part}.size")
            if part == "gen_object":
                position = "None" if position is None else f"Some({position})"
            lines += f"            {part}: {position},\n"
        return [f"debug_offsets: Some(DebugOffsets {{\n{lines}        }})"]

    def _same_in_both_builds(self, name: str) -> None:
        default, free_threaded = (self.new.values[build].get(name) for build in BUILDS)
        if default != free_threaded:
            self.open.append(f"{name} is {default} in the default build, {free_threaded} in the free-threaded one")

    def _taken_for_granted(self) -> None:
        """Changes that no number in a row can follow."""
        for name in self.old.values["Gil"]:
            if name not in self.changed:
                continue
            before, now = (
                ", ".join(str(values[build].get(name)) for build in BUILDS)
                for values in (self.old.values, self.new.values)
            )
            place = None
            if name == "frame.instr_is_next":
                place = "say so in frame_layout!(...): Last(prev_instr) or Next(instr_ptr)"
            elif name.startswith("thread."):
                place = "give the layout the beginning of PyThreadState, and a ThreadLayout of it"
            elif name.startswith("slot.") or name == "frame.stack_size":
                place = "choose a codec of layout/slot.rs, or write it"
            elif name.startswith(("object.", "varobject.", "bytes.")) or name == "basicsize.object":
                place = "give layout/object.rs a header for it"
            elif name.startswith(("owner.", "kind.", "flag.", "code_array.")) or name == "code.unit_size":
                place = "src/read.rs takes the old value for granted"
            elif name == "function.func_builtins":
                place = "see FunctionLayout in layout/object.rs"
            if place is not None:
                self.open.append(f"{name} is {now} (default, free-threaded), was {before}: {place}")

    # The structs that have moved.

    def _differs(self, part: _Part) -> bool:
        default, free_threaded = self.definitions[part].values()
        return default.fields != free_threaded.fields

    def _type(self, part: _Part, build: str, header: str) -> str:
        own = build == "FreeThreaded" and self._differs(part)
        definition = self.definitions[part][build]
        name = part.free_threaded if own else part.rust
        has_header = any(re.search(r"\bH\b", _field(field)[1]) for field in definition.fields)
        return f"{name}<{header}>" if has_header else name

    def _structs(self, part: _Part) -> list[str]:
        structs = [self._struct(self._type(part, "Gil", "H"), self.definitions[part]["Gil"])]
        if self._differs(part):
            struct = self._struct(self._type(part, "FreeThreaded", "H"), self.definitions[part]["FreeThreaded"])
            structs.append(f"/// Under `Py_GIL_DISABLED`.\n{struct}")
        return structs

    def _struct(self, name: str, definition: Struct) -> str:
        lines = ""
        for declaration in definition.fields:
            field, rust, uses = _field(declaration)
            self.objects.update(uses)
            lines += f"    {field}: {rust}, // {declaration}\n"
        return f"#[repr(C)]\nstruct {name} {{\n{lines}}}"

    def _free_threaded(self) -> tuple[str, bool]:
        """What the free-threaded build changes besides its header, and whether it changes anything."""
        has_base = self.old.changes_free_threaded
        own = [part for part in self.moved if self._differs(part)]
        if not own:
            return (f"pub(super) use super::{self.previous}::free_threaded;" if has_base else ""), has_base
        overrides = ""
        for part in own:
            struct = self._type(part, "FreeThreaded", "FreeThreadedPyObject")
            value = self._value(part, struct, f"Some(offset_of!({struct}, co_tlbc))")
            if part.field == "frame" and "frame.tlbc_index" in self.new.values["FreeThreaded"]:
                self.imports.add("FrameLayout")
                value = value.replace("\n", "\n    ")
                value = (
                    "FrameLayout {\n            "
                    f"tlbc_index: Some(offset_of!({struct}, tlbc_index)),\n            ..{value}\n        }}"
                )
            overrides += f"        {part.field}: {value},\n"
        base = f"{self.previous}::free_threaded(default)" if has_base else "default"
        return (
            "/// What `Py_GIL_DISABLED` changes besides the object header.\n"
            "pub(super) const fn free_threaded(default: Row) -> Row {\n"
            f"    Row {{\n{overrides}        ..{base}\n    }}\n}}"
        ), True

    def _asserts(self) -> str:
        """The new offsets, so that a struct that was written down wrongly does not compile."""
        own = [part.own for part in self.moved]
        if "FunctionLayout" in self.imports:
            own.append(lambda name: name in ("basicsize.function", "function.func_closure"))
        return "\n".join(
            f"const _: () = assert!({build}::ROW{field} == {self.new.values[build][name]});"
            for build in BUILDS
            for name, field in self.old.fields.items()
            if any(is_own(name) for is_own in own)
        )

    # The rest of the file.

    def _documentation(self) -> str:
        same = f"the same headers as {self.old.version}"
        found = dict.fromkeys(struct.header for part in self.moved for struct in self.definitions[part].values())
        if found:
            same = f"{', '.join(f'`{header}`' for header in found)}, otherwise in {same}"
        names = [f"`{part.rust}`" for part in self.moved]
        structs = f"{_listed(names)} changed (say how)" if names else "no struct that is read here has changed"
        since = f"Since {self.old.version}: {structs}."
        if self.news:
            since += f" New {'is' if len(self.news) == 1 else 'are'} {_listed(self.news)}."
        read = f"CPython 3.{self.new.minor}. Read in {same}, of {self.new.version}."
        return "\n//!\n".join(
            textwrap.fill(
                text,
                80,
                initial_indent="//! ",
                subsequent_indent="//! ",
                break_on_hyphens=False,
                break_long_words=False,
            )
            for text in (read, since)
        )

    def _uses(self, structs: list[str]) -> str:
        codec, _ = self.old.slot
        # In rustfmt's order: types, then macros and modules.
        names = sorted(self.imports, key=lambda name: (name.islower(), name))
        code = "\n".join(re.sub(r"//.*", "", struct) for struct in structs)
        if re.search(r"\bPtr\b", code):
            self.objects.add("Ptr")
        return "\n".join(
            [
                *(["use std::mem::offset_of;\n"] if structs else []),
                f"use super::object::{{{', '.join(sorted(self.objects))}}};",
                f"use super::slot::{codec};",
                f"use super::{{{', '.join([*names, self.previous])}}};",
            ]
        )

    def _open_questions(self) -> list[str]:
        errors = [f'compile_error!("{question}");' for question in self.open]
        return ["\n".join(errors)] if errors else []

    def _builds(self, has_free_threaded: bool) -> str:
        _, slot = self.old.slot
        row = "row::<FreeThreadedPyObject>(Build::FreeThreaded)"
        if has_free_threaded:
            row = f"free_threaded({row})"
        return f"""\
/// The default build.
pub struct Gil;

impl Layout for Gil {{
    type Slot = {slot};
    const ROW: Row = row::<PyObject>(Build::Gil);
}}

/// `--disable-gil`.
pub struct FreeThreaded;

impl Layout for FreeThreaded {{
    type Slot = {slot};
    const ROW: Row = {row};
}}"""


def _field(declaration: str) -> tuple[str, str, set[str]]:
    """A C declaration as a Rust field: name, type, and what to import from layout/object.rs.

    A type that is not known here keeps its C name, which does not compile.
    """
    function = re.search(r"\(\s*\*\s*(\w+)\s*\)", declaration)
    if function is not None:
        return function[1], "Ptr", set()
    parts = re.fullmatch(r"(.+?)(\w+)\s*(\[[^\]]*\])?\s*(:.*)?", declaration)
    if parts is None or parts[4] is not None or "," in declaration:
        return "unknown_declaration", "unknown_type", set()
    c_type = re.sub(r"\b(const|volatile|struct|_Atomic)\b", "", parts[1]).strip()
    rust = "Ptr" if "*" in c_type else _RUST_TYPES.get(c_type, c_type.replace(" ", "_"))
    uses = {name for name in ("PyVarObject", "PyErrStackItem") if name in rust}
    if parts[3] is not None:
        length = re.sub(r"[\[\]()\s]", "", parts[3])
        element = "u8" if rust == "i8" else rust
        rust = f"[{element}; {length or 'unknown_length'}]"
    return parts[2], rust, uses


def _listed(items: list[str]) -> str:
    return " and ".join([", ".join(items[:-1]), items[-1]]) if len(items) > 1 else items[0]
