"""The program that trace_locals runs if it is given no other: every kind of frame."""


def make_counter(start):
    count = start

    def increment(step):
        nonlocal count
        count += step
        return count

    return increment


def scaled(numbers, factor):
    products = [number * factor for number in numbers]
    return sum(product for product in products)


def countdown(start):
    while start:
        left = f"{start} left"
        yield left
        start -= 1


class Account:
    currency = "EUR"

    def __init__(self, balance):
        self.balance = balance


class Savings(Account):
    def __init__(self, balance, *, rate=0.02):
        super().__init__(balance)
        self.rate = rate


class Reply:
    def __await__(self):
        return (yield "waiting")


async def ask(question):
    answer = await Reply()
    return question, answer


def main():
    increment = make_counter(40)
    print("closure:", increment(2))
    print("comprehension:", scaled([1, 2, 3], factor=10))
    print("generator:", list(countdown(2)))
    print("class:", Savings(100).rate)

    # What an event loop does.
    coroutine = ask("how many?")
    print("coroutine:", coroutine.send(None))
    try:
        coroutine.send(42)
    except StopIteration as finished:
        print("coroutine:", finished.value)


main()
