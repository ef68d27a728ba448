# What src/canary.rs runs to see frames of known content. Slots of `canary`:
# plain (argument), boxed (argument that becomes a cell variable), late (unset at
# entry), free (free variable).


def enclosing(free):
    def canary(plain, boxed):
        late = lambda: (boxed, free)
        probe(plain)
        returned()
        return late

    return canary


def probe(plain):
    nested()


def nested():
    pass


def returned():
    pass


def generator(plain):
    yield
