"""The program that stack_sampler runs if it is given no other: some of it calls much, some calls little."""


def digits(number):
    return sum(int(digit) for digit in str(number))


def collatz(number):
    steps = 0
    while number != 1:
        number = half(number) if number % 2 == 0 else 3 * number + 1
        steps += 1
    return steps


def half(number):
    return number // 2


def tree(depth):
    return 1 if depth == 0 else tree(depth - 1) + tree(depth - 1)


def main():
    print(sum(digits(number) for number in range(20_000)))
    print(max(collatz(number) for number in range(1, 2_000)))
    print(tree(15))


main()
