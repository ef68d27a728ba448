# What src/self_test.rs runs to see whether frames are read as they should be. Each
# of these says what a frame holds: every other slot of it must have no value.


def entering(test, values):
    """The frame that starts next, before it does."""


def holding(test, values):
    """The frame that calls this."""


def left(test, values):
    """The frame that was left last."""


ONE, TWO = object(), object()


def arguments():
    def function(first, second, *rest, keyword=TWO):
        holding("arguments", {"first": ONE, "second": TWO, "rest": (), "keyword": TWO})
        local = ONE
        holding("a local variable", {"first": ONE, "second": TWO, "rest": (), "keyword": TWO, "local": ONE})
        del local
        holding("a deleted variable", {"first": ONE, "second": TWO, "rest": (), "keyword": TWO})

    entering("arguments, before the frame starts", {"first": ONE, "second": TWO, "rest": (), "keyword": TWO})
    function(ONE, TWO)


def closures():
    def enclosing(free):
        def function(plain, boxed):
            late = lambda: (boxed, free)
            holding("cell and free variables", {"plain": ONE, "boxed": TWO, "late": late, "free": ONE})

        return function

    function = enclosing(ONE)
    entering("cell and free variables, before the frame starts", {"plain": ONE, "boxed": TWO, "free": ONE})
    function(ONE, TWO)


def empty_cells():
    def function():
        holding("a free variable without a value", {})
        lambda: late

    entering("a free variable without a value, before the frame starts", {})
    function()
    late = ONE


def methods():
    class Class:
        def method(self):
            holding("__class__ in a method", {"self": self, "__class__": Class, "Class": Class})
            return __class__

    Class().method()


def class_bodies():
    free = ONE

    class Class:
        holding("a class body", {})
        name = free


def generators():
    def generator(argument):
        local = TWO
        yield
        local = ONE

    entering("a generator, before it is made", {"argument": ONE})
    made = generator(ONE)
    next(made)
    left("a suspended generator", {"argument": ONE, "local": TWO})
    next(made, None)
    left("a finished generator", {})


def coroutines():
    async def coroutine(argument):
        local = TWO
        holding("a coroutine", {"argument": ONE, "local": TWO})

    try:
        coroutine(ONE).send(None)
    except StopIteration:
        pass


def exceptions():
    def function():
        try:
            raise ValueError
        except ValueError as error:
            holding("an exception handler", {"error": error})
        holding("after an exception handler", {})

    function()


def run():
    """Often enough that the interpreter specialises the code."""
    from gc import collect
    from sys import getrefcount

    before = getrefcount(ONE)
    for _ in range(100):
        arguments()
        closures()
        empty_cells()
        methods()
        class_bodies()
        generators()
        coroutines()
        exceptions()
    collect()  # the classes are in cycles
    return getrefcount(ONE) - before
