"""Lists the public Rust API, one line for each thing that a dependent's code could name, and what has no example.

It is read out of rustdoc's JSON. That is not stable yet: an unknown form is an error here, to be added below.
"""

import json

# rustc implements these by itself, and nobody can name them in stable Rust.
_NOT_NAMEABLE = ("Freeze", "StructuralPartialEq", "UnsafeUnpin")


class Api:
    def __init__(self, file):
        self._crate = json.loads(file.read_text(encoding="utf-8"))
        self.lines = []
        self.without_example = []
        self._walk(self._item(self._crate["root"]), "localsplus")
        self.lines.sort()

    def _item(self, number):
        return self._crate["index"].get(str(number))

    def _walk(self, item, path):
        (kind, inner), *_ = item["inner"].items()
        if kind == "use":
            self._walk(self._item(inner["id"]), f"{path.rpartition('::')[0]}::{inner['name']}" if item["name"] else path)
            return
        getattr(self, f"_{kind}")(item, inner, path)

    def _children(self, numbers, path):
        for number in numbers:
            item = self._item(number)
            if item is None:
                continue  # #[doc(hidden)]
            (kind, inner), *_ = item["inner"].items()
            self._walk(item, f"{path}::{inner['name'] if kind == 'use' else item['name']}")

    def _add(self, item, line):
        self.lines.append(line)
        if "```" not in (item["docs"] or ""):
            self.without_example.append(line)

    def _module(self, item, inner, path):
        if item["id"] != self._crate["root"]:
            self.lines.append(f"mod {path}")
        self._children(inner["items"], path)

    def _struct(self, item, inner, path):
        ((kind, fields),) = inner["kind"].items() if isinstance(inner["kind"], dict) else ((inner["kind"], []),)
        self._add(item, f"struct {path}{generics(inner['generics'])}{self._repr(item)}")
        if kind == "plain":
            self._children(fields["fields"], path)
        elif kind == "tuple":
            self._children([field for field in fields if field is not None], path)
        self._impls(inner["impls"], path)

    def _struct_field(self, item, inner, path):
        self.lines.append(f"field {path}: {shown(inner)}")

    def _enum(self, item, inner, path):
        marks = " #[non_exhaustive]" if "non_exhaustive" in json.dumps(item["attrs"]) else ""
        self._add(item, f"enum {path}{generics(inner['generics'])}{self._repr(item)}{marks}")
        self._children(inner["variants"], path)
        self._impls(inner["impls"], path)

    def _variant(self, item, inner, path):
        self.lines.append(f"variant {path}")
        kind = inner["kind"]
        if isinstance(kind, dict):
            ((kind, fields),) = kind.items()
            numbers = fields["fields"] if kind == "struct" else fields
            self._children([field for field in numbers if field is not None], path)

    def _function(self, item, inner, path):
        self._add(item, signature(path, inner))

    def _assoc_const(self, item, inner, path):
        self.lines.append(f"const {path}: {shown(inner['type'])}")

    def _constant(self, item, inner, path):
        self._add(item, f"const {path}: {shown(inner['type'])}")

    def _assoc_type(self, item, inner, path):
        self.lines.append(f"type {path} = {shown(inner['type'])}")

    def _type_alias(self, item, inner, path):
        self._add(item, f"type {path}{generics(inner['generics'])} = {shown(inner['type'])}")

    def _trait(self, item, inner, path):
        self._add(item, f"trait {path}{generics(inner['generics'])}: {bounds(inner['bounds'])}")
        self._children(inner["items"], path)

    def _impls(self, numbers, path):
        for number in numbers:
            inner = self._item(number)["inner"]["impl"]
            if inner["trait"] is None:
                self._children(inner["items"], path)
            elif not inner["blanket_impl"] and inner["trait"]["path"] not in _NOT_NAMEABLE:
                no = "!" if inner["is_negative"] else ""
                self.lines.append(f"impl{generics(inner['generics'])} {no}{named(inner['trait'])} for {shown(inner['for'])}")

    def _repr(self, item):
        return " #[repr(C)]" if "repr" in json.dumps(item["attrs"]) else ""


def signature(path, function):
    header, form = function["header"], function["sig"]
    words = [word for word in ("const", "unsafe", "async") if header[f"is_{word}"]]
    abi = header["abi"] if isinstance(header["abi"], str) else next(iter(header["abi"]))
    words += [] if abi == "Rust" else [f'extern "{abi}"']
    inputs = ", ".join(f"{name}: {shown(kind)}" for name, kind in form["inputs"])
    output = "" if form["output"] is None else f" -> {shown(form['output'])}"
    return " ".join([*words, "fn", f"{path}{generics(function['generics'])}({inputs}){output}"])


def generics(form):
    names = []
    for parameter in form["params"]:
        ((kind, inner),) = parameter["kind"].items()
        if kind == "type" and inner["is_synthetic"]:
            continue  # impl Trait, shown where it stands
        bound = bounds(inner.get("bounds", [])) or " + ".join(inner.get("outlives", []))
        constant = f"const {parameter['name']}: {shown(inner['type'])}" if kind == "const" else None
        names.append(constant or (f"{parameter['name']}: {bound}" if bound else parameter["name"]))
    where = [
        f"{shown(inner['type'])}: {bounds(inner['bounds'])}" if kind == "bound_predicate" else json.dumps(inner)
        for predicate in form["where_predicates"]
        for kind, inner in predicate.items()
    ]
    return (f"<{', '.join(names)}>" if names else "") + (f" where {', '.join(where)} " if where else "")


def bounds(forms):
    words = []
    for form in forms:
        ((kind, inner),) = form.items()
        if kind == "trait_bound":
            words.append(("?" if inner["modifier"] == "maybe" else "") + named(inner["trait"]))
        elif kind == "outlives":
            words.append(inner)
        elif kind == "use":
            words.append(f"use<{', '.join(next(iter(each.values())) for each in inner)}>")
        else:
            raise ValueError(f"an unknown bound: {form}")
    return " + ".join(words)


def named(path):
    return path["path"].rpartition("::")[2] + arguments(path["args"])


def arguments(form):
    if form is None:
        return ""
    if "parenthesized" in form:
        inner = form["parenthesized"]
        output = "" if inner["output"] is None else f" -> {shown(inner['output'])}"
        return f"({', '.join(map(shown, inner['inputs']))}){output}"
    words = []
    for argument in form["angle_bracketed"]["args"]:
        ((kind, inner),) = argument.items() if isinstance(argument, dict) else ((argument, None),)
        words.append({"lifetime": lambda: inner, "type": lambda: shown(inner)}.get(kind, lambda: json.dumps(inner))())
    for constraint in form["angle_bracketed"]["constraints"]:
        ((kind, inner),) = constraint["binding"].items()
        value = bounds(inner) if kind == "constraint" else shown(inner["type"])
        words.append(f"{constraint['name']} = {value}")
    return f"<{', '.join(words)}>" if words else ""


def shown(form):
    ((kind, inner),) = form.items() if isinstance(form, dict) else ((form, None),)
    match kind:
        case "resolved_path":
            return named(inner)
        case "generic" | "primitive":
            return inner
        case "tuple":
            return f"({', '.join(map(shown, inner))})"
        case "slice":
            return f"[{shown(inner)}]"
        case "array":
            return f"[{shown(inner['type'])}; {inner['len']}]"
        case "raw_pointer":
            return f"*{'mut' if inner['is_mutable'] else 'const'} {shown(inner['type'])}"
        case "borrowed_ref":
            life = f"{inner['lifetime']} " if inner["lifetime"] else ""
            return f"&{life}{'mut ' if inner['is_mutable'] else ''}{shown(inner['type'])}"
        case "impl_trait":
            return f"impl {bounds(inner)}"
        case "dyn_trait":
            return "dyn " + " + ".join(named(each["trait"]) for each in inner["traits"])
        case "qualified_path":
            return f"<{shown(inner['self_type'])} as {named(inner['trait'])}>::{inner['name']}"
        case "function_pointer":
            inputs = ", ".join(shown(each) for _, each in inner["sig"]["inputs"])
            output = "" if inner["sig"]["output"] is None else f" -> {shown(inner['sig']['output'])}"
            return f"fn({inputs}){output}"
        case _:
            raise ValueError(f"an unknown type: {form}")
